"""Forecast: what the pending batches of a plan will take, in seconds and USD.

The better of two sources: what earlier runs of the job took, or the size of the model and
what the device can do at most. Both say how wide they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean

from pipelines.datasheets import datasheet_limits
from pipelines.devices import Device, describe
from pipelines.history import History, history_of
from pipelines.step_costs import Requests
from pipelines.storage import Store
from schemas.checkpoints import Checkpoint
from schemas.forecasts import Forecast
from schemas.plans import PlannedBatch

REACHED_FRACTION = 0.35
"""Of the device's limit, by the formula of `by_size`: 0.39 eager and 0.47 compiled were measured
on two CPU cores with 135 M parameters in INT8 (docs/log.md); small models reach less."""
SIZE_FACTOR = 3.0
"""A forecast by size may be wrong by this factor, either way."""
LOAD_S = 20.0
"""Loading took 3 s (eager) to 48 s (compiled) on that CPU."""
COVERAGE = 0.9
"""The share of outcomes that an interval by earlier runs is meant to hold."""
PRIOR_DEVIATION, PRIOR_RUNS = 0.1, 4
"""Runs of the same work differ by a tenth (standard deviation of the logarithm) on a machine
that others use too; that is believed as much as four runs' own differences."""
_NUM_SEQUENCES = {"cpu": 64, "cuda": 256}

_T, _G = 1e12, 1e9
_CORE_INT8, _CORE_BF16 = 0.8 * _T, 0.43 * _T
"""Per core with AVX512-VNNI, both measured as GEMM on Zen 5; a core without is a quarter."""
_CPU_BYTES_PER_S = 40 * _G


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds: expected, and the ends of the interval."""

    expected: float
    low: float
    high: float


def forecast_of(
    pending: Sequence[PlannedBatch],
    outputs: Sequence[Store],
    checkpoint: Checkpoint,
    *,
    engine: str,
    usd_per_device_hour: float,
    run: Store | None = None,
) -> Forecast:
    """Return what the pending batches will take: by earlier runs at `outputs`, else by size.

    What is committed of `run`, the one that they belong to, counts as an earlier run.
    """
    if not any(batch.num_requests for batch in pending):
        nothing = Span(expected=0.0, low=0.0, high=0.0)
        return _forecast("no request is left to be answered", nothing, 0.0, 0)
    earlier = history_of(outputs, weights_hash=checkpoint.weights_hash, engine=engine, run=run)
    if earlier is not None:
        return by_history(pending, earlier, usd_per_device_hour)
    if engine != "vllm":
        return Forecast(basis=f"no earlier run to go by, and engine {engine} has no model's speed")
    return by_size(pending, checkpoint, describe(), usd_per_device_hour)


def by_history(
    pending: Sequence[PlannedBatch], history: History, usd_per_device_hour: float
) -> Forecast:
    """Return what the pending batches take if they go as earlier ones did.

    output tokens = predicted ones x (real over predicted in runs that were planned alike);
    seconds = load + end + cost of the batches x (seconds over cost of the runs) x (1 + idle).
    The cost is that of the engine steps (`step_costs`), prompts without what was cached.
    """
    ratio = _output_ratio(pending, history)
    requests = [
        Requests(
            num_requests=batch.num_requests,
            num_prompt_tokens=batch.num_prompt_tokens,
            num_cached_tokens=batch.num_prompt_tokens * history.cached_fraction,
            num_output_tokens=batch.predicted_output_tokens * ratio,
        )
        for batch in pending
    ]
    center, width = spread(history.seconds_over_cost, num_requests=_num_requests(pending))
    busy_s = history.cost(requests) * center
    fixed_s = history.load_s + history.end_s
    held = Span(
        expected=fixed_s + busy_s * (1 + history.idle_fraction),
        low=(fixed_s + busy_s * (1 + history.idle_fraction)) / width,
        high=(fixed_s + busy_s * (1 + history.idle_fraction)) * width,
    )
    num_output = round(sum(batch.predicted_output_tokens for batch in pending) * ratio)
    device = history.runs[0].batches[-1]
    basis = (
        f"{len(history.batches):,} batches of the last {len(history.runs)} runs on "
        f"{device.device_name}, {history.sums.num_steps:,.0f} engine steps; "
        f"{ratio:.0%} of the output tokens that were planned, "
        f"{history.cached_fraction:.0%} of the prompt tokens cached"
    )
    price = device.num_devices * usd_per_device_hour / 3600
    return replace(
        _forecast(basis, held, price, num_output),
        is_from_history=True,
        num_devices=device.num_devices,
        load_s=history.load_s,
        busy_s=busy_s,
    )


def spread(ratios: Sequence[float], *, num_requests: int) -> tuple[float, float]:
    """Return the middle of the runs' ratios, and the factor by which the next may miss it.

    The prediction interval of a normal distribution of logarithms: t x s x sqrt(1 + 1/n), with
    the deviation s of n runs pooled with that of `PRIOR_RUNS` runs. Answers differ by about
    their mean, and are about half of the work, so few requests widen it.
    """
    logs = [math.log(ratio) for ratio in ratios]
    middle, n = fmean(logs), len(logs)
    freedom = PRIOR_RUNS + n - 1
    own = sum((one - middle) ** 2 for one in logs)
    variance = (PRIOR_RUNS * PRIOR_DEVIATION**2 + own) / freedom
    deviation = math.sqrt(variance * (1 + 1 / n) + 0.25 / max(1, num_requests))
    return math.exp(middle), math.exp(_quantile_of_t(freedom) * deviation)


def _quantile_of_t(freedom: int) -> float:
    """Return Student's t that `COVERAGE` lies within, both sides.

    Source: Abramowitz and Stegun 26.7.5, the expansion by the normal quantile.
    """
    z = NormalDist().inv_cdf((1 + COVERAGE) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _output_ratio(pending: Sequence[PlannedBatch], history: History) -> float:
    """Return the share of the predicted output tokens that will come.

    By runs that were planned in the same way: with what answers may take at most, or with what
    earlier answers took. A prediction by answers, that no run has tested, is believed.
    """
    predicted = sum(batch.predicted_output_tokens for batch in pending)
    is_maximum = predicted == sum(batch.max_output_tokens for batch in pending)
    ratios = history.output_ratios(by_maximum=is_maximum)
    return math.exp(fmean(map(math.log, ratios))) if ratios and min(ratios) > 0 else 1.0


def by_size(
    pending: Sequence[PlannedBatch],
    checkpoint: Checkpoint,
    device: Device,
    usd_per_device_hour: float,
) -> Forecast:
    """Return what the pending batches take by the model's size, wide by `SIZE_FACTOR` each way.

    With P weights and all planned output tokens:
    compute = 2 x P x (prompt + output tokens) / operations per second;
    memory = weight bytes x output tokens / sequences at a time / bytes per second;
    seconds = load + max(compute, memory) / `REACHED_FRACTION`.
    """
    limits = _limits(device, is_int8=_bytes_per_weight(checkpoint) == 1)
    if limits is None:
        return Forecast(
            basis=f"no earlier run to go by, and the speed of {device.name} is not known here"
        )
    operations_per_s, bytes_per_s = limits
    weight_bytes = sum(f.num_bytes for f in checkpoint.files if f.name.endswith(".safetensors"))
    num_weights = weight_bytes / _bytes_per_weight(checkpoint)
    num_output = _planned_output(pending)
    compute = 2 * num_weights * (_prompt(pending) + num_output) / operations_per_s
    memory = weight_bytes * num_output / _NUM_SEQUENCES[device.kind] / bytes_per_s
    busy = max(compute, memory) / REACHED_FRACTION
    seconds = LOAD_S + busy
    held = Span(expected=seconds, low=seconds / SIZE_FACTOR, high=seconds * SIZE_FACTOR)
    basis = (
        f"no earlier run to go by; {num_weights / 1e6:,.0f} M weights on {device.name} at "
        f"{REACHED_FRACTION:.0%} of {operations_per_s / _T:,.1f} T operations/s, "
        f"wrong by up to a factor of {SIZE_FACTOR:g}"
    )
    guessed = _forecast(basis, held, usd_per_device_hour / 3600, num_output)
    return replace(guessed, load_s=LOAD_S, busy_s=busy)


def _prompt(batches: Sequence[PlannedBatch]) -> int:
    return sum(batch.num_prompt_tokens for batch in batches)


def _planned_output(batches: Sequence[PlannedBatch]) -> int:
    return sum(batch.predicted_output_tokens for batch in batches)


def _limits(device: Device, *, is_int8: bool) -> tuple[float, float] | None:
    """Return operations and bytes per second of one device at most, None if not known."""
    if device.kind == "cpu":
        has_vnni = any("vnni" in flag or "amx" in flag or flag == "i8mm" for flag in device.flags)
        core = (_CORE_INT8 if is_int8 else _CORE_BF16) / (1 if has_vnni else 4)
        return core * device.num_cores, _CPU_BYTES_PER_S
    limits = datasheet_limits(device.name)
    if limits is None:
        return None
    return (limits.int8_ops_per_s if is_int8 else limits.float_ops_per_s), limits.bytes_per_s


def _bytes_per_weight(checkpoint: Checkpoint) -> float:
    return {"W8A8": 1.0, "W4A16": 0.5}.get(checkpoint.quantization or "", 2.0)


def _num_requests(batches: Sequence[PlannedBatch]) -> int:
    return sum(batch.num_requests for batch in batches)


def _forecast(basis: str, held: Span, usd_per_s: float, output_tokens: int) -> Forecast:
    return Forecast(
        basis=basis,
        seconds=held.expected,
        low_s=held.low,
        high_s=held.high,
        usd=held.expected * usd_per_s,
        low_usd=held.low * usd_per_s,
        high_usd=held.high * usd_per_s,
        output_tokens=output_tokens,
    )
