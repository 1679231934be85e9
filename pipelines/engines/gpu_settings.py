"""How vLLM is started on GPUs: how much a step should hold, and what the memory allows.

No GPU has confirmed these numbers yet (docs/decisions/0010); `promptmill tune` measures.
"""

from pipelines.engines import balance
from pipelines.engines.basis import Basis
from pipelines.engines.settings import Chosen, EngineSettings
from schemas.engine_overrides import KvCacheDtype

_NUM_SEQS = (32, 1024)
_NUM_SEQS_IF_UNKNOWN = 256
_STEP_TOKENS_IF_UNKNOWN = 8192
_MEMORY_FRACTION = 0.9
_RESERVE_BYTES = 3 << 30
"""For CUDA itself, graphs and activations; a guess, only to know how many sequences fit."""
_FP8_FROM = (8, 9)
"""GPUs from here on compute with FP8; older ones would convert at every read."""
_FP8_WHERE_CAPPED_BELOW = 0.5


def gpu_settings(basis: Basis) -> EngineSettings:
    """Return how to start vLLM on GPUs; it measures by itself what memory the KV cache gets."""
    batched = _step_tokens(basis)
    num_seqs = basis.num_seqs(
        basis.wanted.max_num_batched_tokens or batched.value,
        _NUM_SEQS,
        _NUM_SEQS_IF_UNKNOWN,
    )
    kv_dtype = basis.or_job(basis.wanted.kv_cache_dtype, _kv_dtype(basis, num_seqs))
    if basis.wanted.max_num_seqs is None:
        num_seqs = _within_kv(basis, num_seqs, kv_dtype.value)
    return EngineSettings(
        device=basis.device,
        max_model_len=basis.max_model_len(),
        max_num_seqs=num_seqs,
        max_num_batched_tokens=basis.batched_tokens(batched, num_seqs.value),
        block_size=basis.or_job(
            basis.wanted.block_size, Chosen(value=None, reason="vLLM's own for this device")
        ),
        kv_cache_bytes=basis.or_job(
            basis.kv_cache_bytes(),
            Chosen(value=None, reason="vLLM measures what is left beside the weights"),
        ),
        kv_cache_dtype=kv_dtype,
        dtype=Chosen(value="auto", reason="the model's own type"),
        compile=basis.compile,
    )


def _step_tokens(basis: Basis) -> Chosen[int]:
    limits = basis.known.limits
    if limits is None or not basis.model.weight_bytes:
        return Chosen(
            value=_STEP_TOKENS_IF_UNKNOWN, reason="the speed of this device is not known here"
        )
    ridge = balance.ridge_tokens(basis.model, limits)
    return Chosen(
        value=balance.batched_tokens(basis.model, limits),
        reason=f"from {ridge:,.0f} tokens a step on computing takes longer than reading the "
        f"weights; {balance.WEIGHT_READS_PER_STEP:.0f} times that, and at least "
        f"{balance.MIN_STEP_S * 1000:.0f} ms a step ({limits.source})",
    )


def _kv_fit(basis: Basis, *, value_bytes: int) -> int | None:
    """Return how many sequences a GPU's memory holds; None where that is not known."""
    workload, values = basis.known.workload, basis.model.kv_values_per_token
    if workload is None or values is None:
        return None
    num_bytes = basis.kv_cache_bytes() or int(
        basis.device.free_memory_bytes * _MEMORY_FRACTION
        - basis.model.weight_bytes / basis.device.num_devices
        - _RESERVE_BYTES
    )
    token_bytes = values * value_bytes // basis.device.num_devices
    return balance.kv_num_seqs(max(0, num_bytes), max(1, token_bytes), workload)


def _kv_dtype(basis: Basis, balanced: Chosen[int]) -> Chosen[KvCacheDtype]:
    fit, capability = _kv_fit(basis, value_bytes=2), basis.device.compute_capability
    if fit is None or fit >= _FP8_WHERE_CAPPED_BELOW * balanced.value:
        return Chosen(value="auto", reason="the model's own type; the KV cache is large enough")
    told = f"memory holds {fit:,} of the {balanced.value:,} sequences in balance"
    if capability is None or capability < _FP8_FROM:
        return Chosen(value="auto", reason=f"{told}, and this device does not compute in FP8")
    return Chosen(value="fp8", reason=f"{told}; FP8 holds twice as many")


def _within_kv(basis: Basis, balanced: Chosen[int], dtype: KvCacheDtype) -> Chosen[int]:
    fit = _kv_fit(basis, value_bytes=1 if dtype == "fp8" else 2)
    if fit is None or fit >= balanced.value:
        return balanced
    return Chosen(value=fit, reason=f"so many fit into the KV cache; else {balanced.reason}")
