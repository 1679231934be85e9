"""What one batch was made from and by, what it took and what it cost: `LINEAGE`."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLineage:
    """One row of `LINEAGE`: the provenance and the bill of one batch.

    `device_s` is the batch's share of engine-busy seconds times devices; `usd` its price.
    `limit_s` is the least that a device at its limit would have needed (pipelines.roofline),
    `fraction_of_limit` is `limit_s / device_s`, `bound_by` what most of it comes from.

    `saved_…_usd` is what was not computed, at the price that the batch's own work had. Of the
    rows that share another row's request (`num_shared_…_tokens`) it prices the output alone,
    since the prefix cache would have had the prompt; and the `num_cached_tokens` that came
    from that cache.

    None means not known: no request reached the engine, or the engine kept no timings, or
    there is no GPU (`gpu_memory_bytes` held after loading, `energy_j` of the batch's share of
    steps), or no price of energy. `output_lengths` counts the answered requests by prompt and
    output length (`schemas.output_lengths`), for later predictions; requests are alike in that
    where `profile_id` and `prompt_id` (of the job's prompt section) are the same.
    `num_tries` is the most tries that any of its requests needed. `settings` is the engine's
    settings as JSON text, `settings_hash` its id. `device_limits` is the source of the limits
    of one device, whose rates stand beside it.
    """

    run_key: str
    batch_id: str
    epoch: int
    job_name: str
    partition: str | None
    num_rows: int
    num_generations: int
    num_rejects: int
    num_requests: int
    num_shared: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_shared_prompt_tokens: int
    num_shared_output_tokens: int
    predicted_output_tokens: int
    max_output_tokens: int
    output_lengths: str
    num_truncated_rows: int
    num_finished_stop: int
    num_finished_length: int
    num_tries: int
    device_s: float
    usd: float
    usd_per_million_tokens: float | None
    tokens_per_s: float | None
    usd_per_device_hour: float
    limit_s: float | None
    fraction_of_limit: float | None
    bound_by: str | None
    saved_dedup_usd: float | None
    saved_prefix_usd: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    queue_p50_s: float | None
    queue_p95_s: float | None
    kv_peak_fraction: float | None
    num_preemptions: int
    gpu_memory_bytes: int | None
    energy_j: float | None
    energy_usd: float | None
    first_step_at: str | None
    committed_at: str
    engine: str
    engine_version: str
    device_name: str
    num_devices: int
    device_int8_ops_per_s: float | None
    device_float_ops_per_s: float | None
    device_bytes_per_s: float | None
    device_limits: str | None
    model_id: str
    model_revision: str | None
    weights: str
    weights_hash: str
    profile_id: str
    prompt_id: str
    settings: str
    settings_hash: str
    code_version: str


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


_TEXT, _COUNT, _REAL = pa.string(), pa.int64(), pa.float64()

LINEAGE = pa.schema(
    [
        _column("run_key", _TEXT),
        _column("batch_id", _TEXT),
        _column("epoch", pa.int32()),
        _column("job_name", _TEXT),
        _column("partition", _TEXT, nullable=True),
        _column("num_rows", _COUNT),
        _column("num_generations", _COUNT),
        _column("num_rejects", _COUNT),
        _column("num_requests", _COUNT),
        _column("num_shared", _COUNT),
        _column("num_prompt_tokens", _COUNT),
        _column("num_cached_tokens", _COUNT),
        _column("num_output_tokens", _COUNT),
        _column("num_shared_prompt_tokens", _COUNT),
        _column("num_shared_output_tokens", _COUNT),
        _column("predicted_output_tokens", _COUNT),
        _column("max_output_tokens", _COUNT),
        _column("output_lengths", _TEXT),
        _column("num_truncated_rows", _COUNT),
        _column("num_finished_stop", _COUNT),
        _column("num_finished_length", _COUNT),
        _column("num_tries", pa.int32()),
        _column("device_s", _REAL),
        _column("usd", _REAL),
        _column("usd_per_million_tokens", _REAL, nullable=True),
        _column("tokens_per_s", _REAL, nullable=True),
        _column("usd_per_device_hour", _REAL),
        _column("limit_s", _REAL, nullable=True),
        _column("fraction_of_limit", _REAL, nullable=True),
        _column("bound_by", _TEXT, nullable=True),
        _column("saved_dedup_usd", _REAL, nullable=True),
        _column("saved_prefix_usd", _REAL, nullable=True),
        _column("ttft_p50_s", _REAL, nullable=True),
        _column("ttft_p95_s", _REAL, nullable=True),
        _column("tpot_p50_s", _REAL, nullable=True),
        _column("tpot_p95_s", _REAL, nullable=True),
        _column("queue_p50_s", _REAL, nullable=True),
        _column("queue_p95_s", _REAL, nullable=True),
        _column("kv_peak_fraction", _REAL, nullable=True),
        _column("num_preemptions", _COUNT),
        _column("gpu_memory_bytes", _COUNT, nullable=True),
        _column("energy_j", _REAL, nullable=True),
        _column("energy_usd", _REAL, nullable=True),
        _column("first_step_at", _TEXT, nullable=True),
        _column("committed_at", _TEXT),
        _column("engine", _TEXT),
        _column("engine_version", _TEXT),
        _column("device_name", _TEXT),
        _column("num_devices", pa.int32()),
        _column("device_int8_ops_per_s", _REAL, nullable=True),
        _column("device_float_ops_per_s", _REAL, nullable=True),
        _column("device_bytes_per_s", _REAL, nullable=True),
        _column("device_limits", _TEXT, nullable=True),
        _column("model_id", _TEXT),
        _column("model_revision", _TEXT, nullable=True),
        _column("weights", _TEXT),
        _column("weights_hash", _TEXT),
        _column("profile_id", _TEXT),
        _column("prompt_id", _TEXT),
        _column("settings", _TEXT),
        _column("settings_hash", _TEXT),
        _column("code_version", _TEXT),
    ],
    metadata={"promptmill.table": "lineage", "promptmill.version": "2"},
)
