"""How vLLM is started on a CPU. docs/decisions/0010 has the measurements behind the constants."""

from typing import Literal

from pipelines.engines.basis import Basis
from pipelines.engines.settings import Chosen, EngineDevice, EngineSettings
from schemas.errors import SettingsError

_MAX_NUM_BATCHED_TOKENS = 512
_NUM_SEQS = (32, 128)
_NUM_SEQS_IF_UNKNOWN = 64

_BLOCK_SIZE = 32
"""vLLM's own for CPUs is 128: an instruction shorter than that would never be cached."""

_KV_FRACTION = 0.35
_KV_BYTES_IF_UNKNOWN = 2 << 30
_KV_TOKENS_PER_SEQUENCE = 1024
_MIN_KV_BYTES = 500_000_000
"""What is left over keeps beginnings that later requests share."""

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Without one of these a CPU computes BF16 by way of FP32, one value at a time."""


def cpu_settings(basis: Basis) -> EngineSettings:
    """Return how to start vLLM on a CPU.

    Raises:
        SettingsError: the KV cache of one request does not fit into free memory.
    """
    is_slow = has_slow_bf16(basis.device)
    num_seqs = basis.num_seqs(_MAX_NUM_BATCHED_TOKENS, _NUM_SEQS, _NUM_SEQS_IF_UNKNOWN)
    block_size = basis.or_job(
        basis.wanted.block_size,
        Chosen(value=_BLOCK_SIZE, reason="vLLM's 128 never caches a shorter instruction"),
    )
    return EngineSettings(
        device=basis.device,
        max_model_len=basis.max_model_len(),
        max_num_seqs=num_seqs,
        max_num_batched_tokens=basis.batched_tokens(
            Chosen(
                value=_MAX_NUM_BATCHED_TOKENS,
                reason="CPU kernels gain nothing beyond, and decoding waits less for prefill",
            ),
            num_seqs.value,
        ),
        block_size=block_size,
        kv_cache_bytes=basis.or_job(
            basis.kv_cache_bytes(),
            _kv_cache(
                basis,
                value_bytes=4 if is_slow else 2,
                block_size=block_size.value or _BLOCK_SIZE,
                num_seqs=num_seqs.value,
            ),
        ),
        kv_cache_dtype=basis.or_job(
            basis.wanted.kv_cache_dtype, Chosen(value="auto", reason="the model's own type")
        ),
        dtype=_dtype(is_slow=is_slow),
        compile=basis.compile,
    )


def has_slow_bf16(device: EngineDevice) -> bool:
    """Return whether this is a CPU that is known to lack BF16 instructions.

    There FP32 is quicker: 385 tokens/s against 76 with BF16 weights, 278 against 265 with INT8
    (SmolLM2-135M, 2 cores of AMD Zen 3, vLLM 0.32). INT8 weights stay INT8.
    """
    known = device.flags
    return device.kind == "cpu" and known is not None and _BF16_FLAGS.isdisjoint(known)


def _dtype(*, is_slow: bool) -> Chosen[Literal["auto", "float32"]]:
    if is_slow:
        reason = "this CPU has no BF16 instructions: FP32 is up to 5 times as fast"
        return Chosen(value="float32", reason=reason)
    return Chosen(value="auto", reason="the model's own type")


def _kv_cache(
    basis: Basis, *, value_bytes: int, block_size: int, num_seqs: int
) -> Chosen[int | None]:
    """Return room for all that runs at once, and for one of any length, within a share of memory.

    vLLM fills the cache with zeros at start, 0.5 to 2 s a GB, so the longest for every sequence
    is no good start: longer ones only mean that fewer run at once.
    """
    limit = int(basis.device.free_memory_bytes * _KV_FRACTION)
    share = f"{_KV_FRACTION:.0%} of free memory"
    values = basis.model.kv_values_per_token
    if values is None:
        value = min(limit, _KV_BYTES_IF_UNKNOWN)
        return Chosen(value=value, reason=f"2 GiB or {share}: the model's shape is not known")
    length = basis.max_model_len().value
    token_bytes, workload = values * value_bytes, basis.known.workload
    one = _whole_blocks(length, block_size) * token_bytes
    if one > limit:
        raise SettingsError(
            f"the KV cache of one sequence takes {one / 1e9:.1f} GB, {limit / 1e9:.1f} GB "
            f"({share}) are there for it; shorten the longest prompts "
            "(prompt.on_too_long, sampling.max_tokens) or use a larger machine"
        )
    tokens = num_seqs * _whole_blocks(_usual_tokens(basis), block_size)
    reason = f"for {num_seqs:,} sequences at once"
    if workload is not None:
        all_tokens = round(workload.num_requests * (workload.mean_tokens + block_size))
        if all_tokens < tokens:
            tokens, reason = all_tokens, f"for all {workload.num_requests:,} requests at once"
    wanted = max(one, tokens * token_bytes, _MIN_KV_BYTES)
    if wanted > limit:
        return Chosen(value=limit, reason=f"{share}; {wanted:,} would be {reason}")
    return Chosen(
        value=wanted,
        reason=f"{reason}, {token_bytes:,} bytes a token; one of {length:,} tokens fits",
    )


def _usual_tokens(basis: Basis) -> int:
    """Return the tokens of a sequence when the engine is full.

    Twice the mean of the heaviest batch: the longest of it come first, and there may be more of
    them than sequences.
    """
    workload, length = basis.known.workload, basis.max_model_len().value
    if workload is None:
        return min(length, _KV_TOKENS_PER_SEQUENCE)
    longest = workload.longest_tokens or length
    return min(longest, round(2 * workload.heaviest_mean_tokens))


def _whole_blocks(num_tokens: int, block_size: int) -> int:
    """Return the tokens in the blocks of one sequence, and one block that vLLM keeps back."""
    return (-(-num_tokens // block_size) + 1) * block_size
