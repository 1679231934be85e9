"""How vLLM is started: from what the device is and what the job needs, to arguments.

Pure functions, but for a look at the model's config.json.
The numbers in docs/decisions/0004 say why a CPU is set up the way it is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.checkpoints import Checkpoint
from schemas.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDevice:
    """What the engine may use: `cpu_ids` are this process's cores, memory is the machine's.

    `flags` are the CPU's instruction sets by their names in /proc/cpuinfo; None: not known.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    cpu_ids: tuple[int, ...]
    free_memory_bytes: int
    num_devices: int = 1
    flags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOverrides:
    """What a job says about its engine; None leaves it to `engine_settings`."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    kv_cache_bytes: int | None = None
    is_eager: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How vLLM is started; None leaves it to vLLM, which measures the device."""

    device: EngineDevice
    max_model_len: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    block_size: int | None
    kv_cache_bytes: int | None
    dtype: Literal["auto", "float32"]
    is_eager: bool

    def as_text(self) -> dict[str, str]:
        """Return what is not among vLLM's own settings, for the lineage."""
        cores = ",".join(map(str, self.device.cpu_ids))
        kv_cache = "measured" if self.kv_cache_bytes is None else str(self.kv_cache_bytes)
        return {"cpu_ids": cores, "kv_cache_bytes": kv_cache}


_CPU_MAX_NUM_SEQS = 64
_CPU_MAX_NUM_BATCHED_TOKENS = 512

_CPU_BLOCK_SIZE = 32
"""vLLM's own for CPUs is 128: an instruction shorter than that would never be cached."""

_KV_FRACTION = 0.35
_KV_BYTES_IF_UNKNOWN = 2 << 30
_KV_TOKENS_PER_SEQUENCE = 1024

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Without one of these a CPU computes BF16 by way of FP32, one value at a time."""


def engine_settings(
    device: EngineDevice,
    checkpoint: Checkpoint,
    *,
    max_model_len: int,
    overrides: EngineOverrides | None = None,
) -> EngineSettings:
    """Return how to start vLLM for sequences of at most `max_model_len` tokens.

    A GPU is left to vLLM but for what the job says: it measures memory and knows its kernels.

    Raises:
        SettingsError: the KV cache of one such sequence does not fit into free memory.
    """
    wanted = overrides or EngineOverrides()
    if device.kind == "cuda":
        return EngineSettings(
            device=device,
            max_model_len=max_model_len,
            max_num_seqs=wanted.max_num_seqs,
            max_num_batched_tokens=wanted.max_num_batched_tokens,
            block_size=wanted.block_size,
            kv_cache_bytes=wanted.kv_cache_bytes,
            dtype="auto",
            is_eager=bool(wanted.is_eager),
        )
    dtype = "float32" if has_slow_bf16(device) else "auto"
    model_config = _model_config(checkpoint)
    max_num_seqs = wanted.max_num_seqs or _CPU_MAX_NUM_SEQS
    block_size = wanted.block_size or _CPU_BLOCK_SIZE
    return EngineSettings(
        device=device,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max(
            wanted.max_num_batched_tokens or _CPU_MAX_NUM_BATCHED_TOKENS, max_num_seqs
        ),
        block_size=block_size,
        kv_cache_bytes=wanted.kv_cache_bytes
        or _cpu_kv_cache_bytes(
            device.free_memory_bytes,
            kv_bytes_per_token(model_config, value_bytes=4 if dtype == "float32" else 2),
            tokens_per_sequence=_whole_blocks(max_model_len, block_size),
            max_num_seqs=max_num_seqs,
        ),
        dtype=dtype,
        is_eager=True if wanted.is_eager is None else wanted.is_eager,
    )


def has_slow_bf16(device: EngineDevice) -> bool:
    """Return whether this is a CPU that is known to lack BF16 instructions.

    There FP32 is quicker: 385 tokens/s against 76 with BF16 weights, 278 against 265 with INT8
    (SmolLM2-135M, 2 cores of AMD Zen 3, vLLM 0.32). INT8 weights stay INT8.
    """
    known = device.flags
    return device.kind == "cpu" and known is not None and _BF16_FLAGS.isdisjoint(known)


def kv_bytes_per_token(config: Mapping[str, Any], *, value_bytes: int) -> int | None:
    """Return the bytes that one token takes in the KV cache; None for a shape unknown here.

    2 (keys and values) x layers x key-value heads x head size x bytes of a value. Latent
    attention and state-space layers keep other things than keys and values.
    """
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    layers = config.get("num_hidden_layers")
    if not (isinstance(heads, int) and isinstance(hidden, int) and isinstance(layers, int)):
        return None
    if "kv_lora_rank" in config or "layer_types" in config:
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or hidden // heads
    return 2 * layers * kv_heads * head_size * value_bytes


def _cpu_kv_cache_bytes(
    free_bytes: int, token_bytes: int | None, *, tokens_per_sequence: int, max_num_seqs: int
) -> int:
    """Return room for all sequences of up to 1,024 tokens, and for one of any length.

    Within a share of free memory. vLLM fills the cache with zeros at start, 0.5 s a GB on a
    quiet machine, so the whole context for every sequence is no good start. Longer sequences
    only mean that fewer of them run at once.
    """
    limit = int(free_bytes * _KV_FRACTION)
    if token_bytes is None:
        return min(limit, _KV_BYTES_IF_UNKNOWN)
    one = tokens_per_sequence * token_bytes
    all_short = min(tokens_per_sequence, _KV_TOKENS_PER_SEQUENCE) * token_bytes * max_num_seqs
    if one > limit:
        raise SettingsError(
            f"the KV cache of one sequence takes {one / 1e9:.1f} GB, {limit / 1e9:.1f} GB "
            f"({_KV_FRACTION:.0%} of free memory) are there for it; shorten the longest prompts "
            "(prompt.on_too_long, sampling.max_tokens) or use a larger machine"
        )
    return min(limit, max(one, all_short))


def _whole_blocks(num_tokens: int, block_size: int) -> int:
    """Return the tokens in the blocks of one sequence, and one block that vLLM keeps back."""
    return (-(-num_tokens // block_size) + 1) * block_size


def _model_config(checkpoint: Checkpoint) -> dict[str, Any]:
    path = Path(checkpoint.path) / "config.json"
    try:
        config: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise SettingsError(f"{path}: holds no JSON object")
    return config


def engine_arguments(checkpoint: Checkpoint, settings: EngineSettings) -> dict[str, Any]:
    """Return the arguments of vLLM's EngineArgs; what is None is left out."""
    arguments: dict[str, Any] = {
        "model": checkpoint.path,
        "load_format": "safetensors",
        "trust_remote_code": False,
        "enable_prompt_embeds": False,
        "enable_prefix_caching": True,
        "dtype": settings.dtype,
        "enforce_eager": settings.is_eager,
        "disable_log_stats": False,
        "use_tqdm_on_load": False,
        "tensor_parallel_size": settings.device.num_devices,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "block_size": settings.block_size,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
    }
    return {name: value for name, value in arguments.items() if value is not None}
