"""How vLLM is started: settings, each with the reason for its value, and vLLM's arguments.

Which values are right is decided in `choosing.py` from the device, the model and the plan.
"""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from schemas.checkpoints import Checkpoint
from schemas.engine_overrides import KvCacheDtype

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDevice:
    """What the engine may use: `cpu_ids` are this process's cores.

    `free_memory_bytes` is the machine's for a CPU, the whole of one device's for a GPU.
    `flags` are the CPU's instruction sets by their names in /proc/cpuinfo; None: not known.
    `compute_capability` is the lowest of the GPUs', None for a CPU.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    cpu_ids: tuple[int, ...]
    free_memory_bytes: int
    num_devices: int = 1
    flags: tuple[str, ...] | None = None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Generic[T]):
    """A value, and why it is this one. A value of None is left to vLLM."""

    value: T
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How vLLM is started. Sizes are of one device."""

    device: EngineDevice
    max_model_len: Chosen[int]
    max_num_seqs: Chosen[int]
    max_num_batched_tokens: Chosen[int]
    block_size: Chosen[int | None]
    kv_cache_bytes: Chosen[int | None]
    kv_cache_dtype: Chosen[KvCacheDtype]
    dtype: Chosen[Literal["auto", "float32"]]
    compile: Chosen[bool]

    @property
    def graph(self) -> str:
        """What a compiled model is good for: vLLM compiles anew where one of these differs."""
        parts = (
            self.max_model_len,
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.block_size,
            self.kv_cache_dtype,
            self.dtype,
        )
        return "-".join(str(one.value) for one in parts)

    def chosen(self) -> "dict[str, Chosen[object]]":
        """Return every setting by its name, with what is fixed for the kind of device."""
        return {
            "compile": self.compile,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "kv_cache_bytes": self.kv_cache_bytes,
            "kv_cache_dtype": self.kv_cache_dtype,
            "dtype": self.dtype,
            **_fixed(self.device),
        }

    def as_text(self) -> dict[str, str]:
        """Return what is not among vLLM's own settings, for the lineage."""
        cores = ",".join(map(str, self.device.cpu_ids))
        num_bytes = self.kv_cache_bytes.value
        return {
            "cpu_ids": cores,
            "kv_cache_bytes": "measured" if num_bytes is None else str(num_bytes),
            "kv_cache_dtype": self.kv_cache_dtype.value,
        }


_EXACT_INT8_FLAGS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8", "i8mm", "asimddp"})
"""Without one of these a CPU adds products of INT8 in 16 bits, which overflow."""


def has_inexact_int8(device: EngineDevice) -> bool:
    """Return whether this is a CPU that is known to multiply INT8 only with overflows.

    There INT8 weights are multiplied as floats (vllm_int8.py, docs/decisions/0016).
    """
    known = device.flags
    return device.kind == "cpu" and known is not None and _EXACT_INT8_FLAGS.isdisjoint(known)


def _fixed(device: EngineDevice) -> dict[str, Chosen[object]]:
    """Return what does not depend on the plan; the environment of the child makes it so."""
    fixed: dict[str, Chosen[object]] = {
        "engine_core": Chosen(
            value="in process",
            reason="2 % faster than in a process of its own, and ready in 3 s, not 14 s",
        ),
    }
    if device.kind == "cuda":
        fixed["async_scheduling"] = Chosen(
            value="vLLM's own", reason="left on where vLLM has it: it hides Python between steps"
        )
        return fixed
    cores = ",".join(map(str, device.cpu_ids))
    fixed["cpu_ids"] = Chosen(
        value=cores,
        reason="all cores compute: vLLM's own binding keeps one back, which cost 31 % of two",
    )
    if has_inexact_int8(device):
        fixed["int8_product"] = Chosen(
            value="as floats",
            reason="without VNNI sums of INT8 overflow, and floats are quicker",
        )
    return fixed


def engine_arguments(checkpoint: Checkpoint, settings: EngineSettings) -> dict[str, Any]:
    """Return the arguments of vLLM's EngineArgs; what is None is left out."""
    arguments: dict[str, Any] = {
        "model": checkpoint.path,
        "load_format": "safetensors",
        "trust_remote_code": False,
        "enable_prompt_embeds": False,
        "enable_prefix_caching": True,
        "disable_log_stats": False,
        "use_tqdm_on_load": False,
        "tensor_parallel_size": settings.device.num_devices,
        "dtype": settings.dtype.value,
        "enforce_eager": not settings.compile.value,
        "max_model_len": settings.max_model_len.value,
        "max_num_seqs": settings.max_num_seqs.value,
        "max_num_batched_tokens": settings.max_num_batched_tokens.value,
        "block_size": settings.block_size.value,
        "kv_cache_memory_bytes": settings.kv_cache_bytes.value,
        "kv_cache_dtype": settings.kv_cache_dtype.value,
    }
    return {name: value for name, value in arguments.items() if value is not None}
