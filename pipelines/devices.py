"""What the hardware is, and which weights it can run.

Reads /proc, the cgroup and NVIDIA's management library; torch is not imported and no device
is opened, so it costs milliseconds and takes no GPU memory. It sees all GPUs of the machine,
also those that CUDA_VISIBLE_DEVICES hides from an engine.
"""

import importlib
import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, cast

import psutil

from schemas.checkpoints import Weights
from schemas.errors import SettingsError

INT8_FROM: Final = (7, 5)
INT8_BELOW: Final = (10, 0)
"""Compute capabilities for which vLLM has INT8 W8A8 kernels: Turing to Hopper, not Blackwell."""
USABLE_FRACTION: Final = 0.9
"""The share of a device's memory that weights may fill; a KV cache needs room beside them."""
_FLAGS = (
    *("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimddp", "i8mm", "bf16", "sve"),
)
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The hardware of this machine that an engine would use.

    `num_devices` counts GPUs, 1 for the CPU; `memory_bytes` is one device's, the smallest.
    `num_cores` are the CPU's cores that this process may use. `compute_capability` is the
    lowest of the GPUs, None for the CPU. `flags` are the CPU's instruction sets that matter.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    num_devices: int
    num_cores: int
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    flags: tuple[str, ...]


class Memory(Protocol):
    """NVML's answer about memory; `total` is in bytes."""

    total: int


class Nvml(Protocol):
    """The calls of `pynvml` that are used; a handle is opaque."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: D102 (names and meaning are NVIDIA's)
        ...

    def nvmlShutdown(self) -> None:  # noqa: D102
        ...

    def nvmlDeviceGetCount(self) -> int:  # noqa: D102
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object:  # noqa: D102
        ...

    def nvmlDeviceGetName(self, handle: object, /) -> str:  # noqa: D102
        ...

    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Memory:  # noqa: D102
        ...

    def nvmlDeviceGetCudaComputeCapability(self, handle: object, /) -> tuple[int, int]:  # noqa: D102
        ...


def describe() -> Device:
    """Return the machine's GPUs as one device, or its CPU where no NVIDIA GPU answers.

    Without nvidia-ml-py (the `gpu` extra) or without a driver there is no GPU.
    """
    cpu = described_cpu(
        cpuinfo=_text(Path("/proc/cpuinfo")),
        num_cores=_usable_cores(),
        memory_bytes=_usable_memory_bytes(),
    )
    if importlib.util.find_spec("pynvml") is None:
        return cpu
    nvml = cast("Nvml", importlib.import_module("pynvml"))
    return described_gpus(nvml, cpu) or cpu


def described_cpu(*, cpuinfo: str, num_cores: int, memory_bytes: int) -> Device:
    """Return the CPU that `/proc/cpuinfo` describes (x86's `flags` or Arm's `Features`)."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    there = set((fields.get("flags") or fields.get("Features") or "").split())
    return Device(
        kind="cpu",
        name=fields.get("model name", "unknown CPU"),
        num_devices=1,
        num_cores=num_cores,
        memory_bytes=memory_bytes,
        compute_capability=None,
        flags=tuple(flag for flag in _FLAGS if flag in there),
    )


def described_gpus(nvml: Nvml, cpu: Device) -> Device | None:
    """Return all GPUs as one device: the weakest of each, every name; None if there is none."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver: a machine without GPUs that has the library
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        if not handles:
            return None
        names = [nvml.nvmlDeviceGetName(handle) for handle in handles]
        return Device(
            kind="cuda",
            name=" + ".join(dict.fromkeys(names)),
            num_devices=len(handles),
            num_cores=cpu.num_cores,
            memory_bytes=min(int(nvml.nvmlDeviceGetMemoryInfo(h).total) for h in handles),
            compute_capability=min(nvml.nvmlDeviceGetCudaComputeCapability(h) for h in handles),
            flags=cpu.flags,
        )
    finally:
        nvml.nvmlShutdown()


def check_weights_fit(
    device: Device, weights: Weights, *, num_weight_bytes: int | None = None
) -> None:
    """Refuse weights that `device` has no kernels or no memory for; `as_is` is only measured.

    Ask with `int8` or `int4` also for a ready-made checkpoint of that scheme. Without
    `num_weight_bytes` (the size of the weight files) memory is not looked at.

    Raises:
        SettingsError: they do not fit; the message names weights that do.

    Source: vLLM 0.32, `CompressedTensorsW8A8Int8` and CUTLASS' scaled_mm for INT8;
    `cpu_gemm_wna16`, which its AVX2 build lacks, and Marlin for INT4.
    """
    capability = device.compute_capability
    where = device.name
    if capability is not None:
        where = f"{device.name} (compute capability {capability[0]}.{capability[1]})"
        if weights == "int8" and capability >= INT8_BELOW:
            raise SettingsError(
                f"weights: int8 (W8A8) has no kernel on {where}, vLLM's end below "
                f"{INT8_BELOW[0]}.{INT8_BELOW[1]}; use bf16, or an FP8 checkpoint with as_is"
            )
        if weights in {"int8", "int4"} and capability < INT8_FROM:
            raise SettingsError(
                f"weights: {weights} has no kernel on {where}, vLLM's begin at "
                f"{INT8_FROM[0]}.{INT8_FROM[1]}; use bf16"
            )
    elif weights == "int4" and "avx512f" not in device.flags:
        raise SettingsError(
            f"weights: int4 (W4A16) has no kernel on {where}: vLLM's needs AVX-512, found "
            f"{', '.join(device.flags) or 'no known instruction set'}; use int8"
        )
    usable_bytes = int(device.memory_bytes * USABLE_FRACTION)
    if num_weight_bytes is not None and num_weight_bytes > usable_bytes:
        raise SettingsError(
            f"weights: {weights} takes {num_weight_bytes / 1e9:.1f} GB, {where} has room for "
            f"{usable_bytes / 1e9:.1f} GB; use weights of fewer bits, or a smaller model"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # not Linux, or another version of cgroups
        return ""


def _usable_cores() -> int:
    """Return the physical cores within this process's affinity and its container's quota."""
    allowed = len(os.sched_getaffinity(0))
    limits: list[int] = [allowed, psutil.cpu_count(logical=False) or allowed]
    match _text(_CGROUP / "cpu.max").split():
        case [quota, period] if quota != "max":
            limits.append(math.ceil(int(quota) / int(period)))
        case _:
            pass
    return max(1, min(limits))


def _usable_memory_bytes() -> int:
    """Return the machine's memory or the container's limit, whichever is smaller."""
    limits = (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes")
    texts: Sequence[str] = [_text(path).strip() for path in limits]
    return min([psutil.virtual_memory().total, *(int(text) for text in texts if text.isdigit())])
