"""A run: what identifies it, how it goes, and how it ended."""

from dataclasses import dataclass
from typing import Literal

from schemas.forecasts import Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """What makes two runs the same run: then the second finds the first one's commits.

    `profile_id` covers model weights, sampling settings and output constraint, `prompt_id` the
    job's prompt section; `job` is the
    job file's identity as JSON text. `input_uri` is for people and takes no part in `run_key`.
    """

    run_key: str
    profile_id: str
    prompt_id: str
    job_name: str
    job: str
    partition: str | None
    input_uri: str
    id_column: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a run goes, now. Rates are of this attempt; None until they are known.

    `phase` is what it does; rows count generations and rejects, committed or finished.
    `eta_s` is seconds left, by the forecast at first, by the rate so far later.
    """

    phase: Literal["plan", "load", "generate", "seal"]
    num_rows: int
    num_rows_total: int | None
    num_batches: int = 0
    num_batches_total: int = 0
    num_output_tokens: int = 0
    tokens_per_s: float | None = None
    rows_per_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    memory_bytes: int | None = None
    kv_usage_fraction: float | None = None
    num_running: int = 0
    usd: float = 0.0
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How a run ended. Counts are of the whole run; times and money of this invocation.

    Rows, requests, batches and tokens come from the manifest, so they are the same whoever
    asks. `num_reused_batches` were committed before this invocation. `device_s` is the time
    that devices were held (load, steps and idle) and `usd` its price; both are 0 where the
    engine was not started. Rates are tokens of this invocation over `generate_s`, None where
    nothing was generated. `run_device_s` and `run_usd` add up all attempts of the run,
    of killed ones what is known.

    `fraction_of_limit` is what a device at its limit would have needed, of `generate_s` times
    devices, and `bound_by` (compute or bandwidth) what that limit comes from; None where model
    or device are not known, or nothing was generated. `num_shared_tokens` are the prompt and
    output tokens of rows that share another row's request. `saved_…_usd` as in `BatchLineage`,
    over the whole run; None where no batch knows it.

    `forecast` is what this invocation was expected to take before its engine was started, None
    where none was needed. Beside it stand `held_s` (load and generate seconds), `usd` and
    `num_new_output_tokens`; `forecast_error` (of seconds) and `output_tokens_error` are shares
    of what was expected: 0.1 is a tenth more.
    """

    run_key: str
    run_uri: str
    num_rows: int
    num_generations: int
    num_rejects: int
    rejects_by_code: dict[str, int]
    num_requests: int
    num_batches: int
    num_reused_batches: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    load_s: float
    generate_s: float
    wall_s: float
    device_s: float
    usd: float
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    run_device_s: float
    run_usd: float
    fraction_of_limit: float | None
    bound_by: str | None
    num_shared_tokens: int
    saved_dedup_usd: float | None
    saved_prefix_usd: float | None
    num_new_output_tokens: int = 0
    held_s: float = 0.0
    forecast: Forecast | None = None
    forecast_error: float | None = None
    output_tokens_error: float | None = None
