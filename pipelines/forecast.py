"""Forecast: what the pending batches of a plan will take, in seconds and USD.

The better of two sources: what earlier runs of the job took, or the size of the model and
what the device can do at most. Both say how wide they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pipelines.attempt_log import read_attempts
from pipelines.devices import Device, describe
from pipelines.ledger import current_run, written_manifest
from pipelines.storage import Store
from schemas.checkpoints import Checkpoint
from schemas.errors import VerificationError
from schemas.forecasts import Forecast
from schemas.lineage import BatchLineage
from schemas.plans import PlannedBatch

REACHED_FRACTION = 0.35
"""Of the device's limit, by the formula of `by_size`: 0.39 eager and 0.47 compiled were measured
on two CPU cores with 135 M parameters in INT8 (docs/log.md); small models reach less."""
SIZE_FACTOR = 3.0
"""A forecast by size may be wrong by this factor, either way."""
LOAD_S = 20.0
"""Loading took 3 s (eager) to 48 s (compiled) on that CPU."""
_MIN_SPREAD = 0.1
_NUM_SEQUENCES = {"cpu": 64, "cuda": 256}

_T, _G = 1e12, 1e9
_GPUS = {  # INT8 op/s, BF16 FLOP/s, bytes/s: dense, by the makers' datasheets
    "H200": (1979 * _T, 989 * _T, 4800 * _G),
    "H100": (1979 * _T, 989 * _T, 3350 * _G),
    "A100": (624 * _T, 312 * _T, 2039 * _G),
    "L40S": (733 * _T, 362 * _T, 864 * _G),
    "A10": (250 * _T, 125 * _T, 600 * _G),
    "L4": (242 * _T, 121 * _T, 300 * _G),
    "T4": (130 * _T, 65 * _T, 320 * _G),
}
_CORE_INT8, _CORE_BF16 = 0.8 * _T, 0.43 * _T
"""Per core with AVX512-VNNI, both measured as GEMM on Zen 5; a core without is a quarter."""
_CPU_BYTES_PER_S = 40 * _G


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What earlier runs of the job took, with the same weights and engine.

    `tokens_per_device_s` counts prompt and output tokens per second of engine steps, at the
    median batch and at its 10th and 90th percentile. `output_fraction` is output tokens
    over those that were possible at most, `idle_fraction` idle over busy seconds.
    """

    num_runs: int
    num_batches: int
    device_name: str
    num_devices: int
    tokens_per_device_s: float
    low_tokens_per_device_s: float
    high_tokens_per_device_s: float
    output_fraction: float
    idle_fraction: float
    load_s: float


def forecast_of(
    pending: Sequence[PlannedBatch],
    outputs: Iterable[Store],
    checkpoint: Checkpoint,
    *,
    engine: str,
    usd_per_device_hour: float,
) -> Forecast:
    """Return what the pending batches will take: by earlier runs at `outputs`, else by size."""
    if not any(batch.num_requests for batch in pending):
        return _forecast("no request is left to be answered", [0.0, 0.0, 0.0], 0.0, 0)
    earlier = history_of(outputs, weights_hash=checkpoint.weights_hash, engine=engine)
    if earlier is not None:
        return by_history(pending, earlier, usd_per_device_hour)
    if engine != "vllm":
        return Forecast(basis=f"no earlier run to go by, and engine {engine} has no model's speed")
    return by_size(pending, checkpoint, describe(), usd_per_device_hour)


def history_of(outputs: Iterable[Store], *, weights_hash: str, engine: str) -> History | None:
    """Return what the current runs at these outputs took; None where none had these weights.

    A run that is damaged counts as none: a forecast is not the place to say so.
    """
    batches: list[BatchLineage] = []
    load_s: list[float] = []
    busy_s = idle_s = 0.0
    num_runs = 0
    for run in _current_runs(outputs):
        try:
            manifest, ends = written_manifest(run), read_attempts(run).ends
        except VerificationError:
            continue
        found = [
            commit.lineage
            for commit in (manifest.commits if manifest else ())
            if _is_comparable(commit.lineage, weights_hash, engine)
        ]
        num_runs += bool(found)
        batches += found
        if found:
            load_s += [end.load_s for end in ends if end.load_s > 0]
            busy_s += sum(end.busy_s for end in ends)
            idle_s += sum(end.idle_s + end.tail_idle_s for end in ends)
    return _history(batches, num_runs, load_s, idle_s / busy_s if busy_s else 0.0)


def by_history(
    pending: Sequence[PlannedBatch], history: History, usd_per_device_hour: float
) -> Forecast:
    """Return what the pending batches take if they go as earlier ones did.

    tokens = prompt tokens + most output tokens x `output_fraction`;
    seconds = load + tokens / (tokens per device-second x devices) x (1 + `idle_fraction`).
    """
    num_output = round(sum(batch.max_output_tokens for batch in pending) * history.output_fraction)
    tokens = _prompt(pending) + num_output
    rates = (
        history.tokens_per_device_s,
        history.high_tokens_per_device_s,
        history.low_tokens_per_device_s,
    )
    busy = [tokens / (rate * history.num_devices) * (1 + history.idle_fraction) for rate in rates]
    basis = (
        f"{history.num_batches} batches of {history.num_runs} earlier runs on "
        f"{history.device_name}: {history.tokens_per_device_s:,.0f} tokens per device-second, "
        f"{history.output_fraction:.0%} of the output tokens that were possible"
    )
    seconds = [history.load_s + one for one in busy]
    price = history.num_devices * usd_per_device_hour / 3600
    known = _forecast(basis, seconds, price, num_output)
    return replace(known, is_from_history=True, load_s=history.load_s, busy_s=busy[0])


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
    seconds = [LOAD_S + busy, (LOAD_S + busy) / SIZE_FACTOR, (LOAD_S + busy) * SIZE_FACTOR]
    basis = (
        f"no earlier run to go by; {num_weights / 1e6:,.0f} M weights on {device.name} at "
        f"{REACHED_FRACTION:.0%} of {operations_per_s / _T:,.1f} T operations/s, "
        f"wrong by up to a factor of {SIZE_FACTOR:g}"
    )
    guessed = _forecast(basis, seconds, usd_per_device_hour / 3600, num_output)
    return replace(guessed, load_s=LOAD_S, busy_s=busy)


def _current_runs(outputs: Iterable[Store]) -> Iterable[Store]:
    for output in outputs:
        current = current_run(output)
        if current is not None:
            yield output.child(current)


def _is_comparable(batch: BatchLineage, weights_hash: str, engine: str) -> bool:
    is_same = batch.weights_hash == weights_hash and batch.engine == engine
    return is_same and batch.num_requests > 0 and batch.device_s > 0


def _history(
    batches: Sequence[BatchLineage], num_runs: int, load_s: Sequence[float], idle_fraction: float
) -> History | None:
    if not batches:
        return None
    rates = sorted(
        (one.num_prompt_tokens + one.num_output_tokens) / one.device_s for one in batches
    )
    middle = sum(one.num_prompt_tokens + one.num_output_tokens for one in batches) / sum(
        one.device_s for one in batches
    )
    possible = sum(one.max_output_tokens for one in batches)
    return History(
        num_runs=num_runs,
        num_batches=len(batches),
        device_name=batches[-1].device_name,
        num_devices=batches[-1].num_devices,
        tokens_per_device_s=middle,
        low_tokens_per_device_s=min(rates[len(rates) // 10], middle * (1 - _MIN_SPREAD)),
        high_tokens_per_device_s=max(rates[-1 - len(rates) // 10], middle * (1 + _MIN_SPREAD)),
        output_fraction=sum(one.num_output_tokens for one in batches) / possible
        if possible
        else 1.0,
        idle_fraction=idle_fraction,
        load_s=median(load_s) if load_s else LOAD_S,
    )


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
    for name, (int8, bf16, bytes_per_s) in _GPUS.items():
        if name in device.name:
            return (int8 if is_int8 else bf16), bytes_per_s
    return None


def _bytes_per_weight(checkpoint: Checkpoint) -> float:
    return {"W8A8": 1.0, "W4A16": 0.5}.get(checkpoint.quantization or "", 2.0)


def _forecast(
    basis: str, seconds: Sequence[float], usd_per_s: float, output_tokens: int
) -> Forecast:
    """Return the forecast of these seconds: expected, fewest, most."""
    expected, low, high = seconds
    return Forecast(
        basis=basis,
        seconds=expected,
        low_s=low,
        high_s=high,
        usd=expected * usd_per_s,
        low_usd=low * usd_per_s,
        high_usd=high * usd_per_s,
        output_tokens=output_tokens,
    )
