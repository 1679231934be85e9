"""The process that measures what a CPU can do at most: products of matrices, and copying.

    python -m pipelines.engines.limits_child PARENT_PID

It has the engine's environment, so the same threads, libraries and kernels. Each rate is the
best of two sizes, each the median of its repeats, in about half a second. A rate is a limit
for these kernels: a better kernel could reach more, nothing the engine calls does.

Frames in: (measure, float type). Frames out: (limits, INT8, float, bytes), or (failed, why).

Source: vLLM 0.32, model_executor/kernels/linear/scaled_mm/cpu.py and layers/utils.py, for
which operators an engine calls: oneDNN's, or where there is AMX those of `sgl-kernels`.
"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any, Never

from pipelines.engines.child_side import leave, take_pipes

if TYPE_CHECKING:
    import torch

_ROWS = 512
_SHAPES = ((576, 1536), (2048, 2048))
"""Inputs and outputs of a layer: a small model's, and one that no cache holds whole."""
_REPEAT_S = 0.5
_MIN_REPEATS = 5
_BUFFER_BYTES = 512 << 20
"""More than any last-level cache that is common."""


def main() -> Never:
    """Measure once, and end."""
    pipes = take_pipes(int(sys.argv[1]))
    frames = pipes.inbox.read(is_blocking=True)
    if not frames:
        return leave(0)
    try:
        pipes.send(("limits", *_limits(frames[0][1])))
    except (ImportError, AttributeError, RuntimeError) as error:
        pipes.send(("failed", f"{type(error).__name__}: {error}"[:500]))
        return leave(1)
    return leave(0)


def _limits(float_type: str) -> tuple[float, float, float]:
    """Return INT8 and float operations and bytes per second."""
    import torch
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[float_type]
    torch.set_default_dtype(dtype)
    with torch.inference_mode():
        int8 = max(_rate(_int8_product(*shape), shape) for shape in _SHAPES)
        floats = max(_rate(_float_product(*shape, dtype), shape) for shape in _SHAPES)
        return int8, floats, _bytes_per_s()


def _rate(product: Callable[[], object], shape: tuple[int, int]) -> float:
    """Return operations per second: two for each input, output and row."""
    return 2 * _ROWS * shape[0] * shape[1] / _seconds(product)


def _int8_product(num_inputs: int, num_outputs: int) -> Callable[[], object]:
    """Return vLLM's product for W8A8 layers on this CPU."""
    import torch
    from vllm import _custom_ops as ops
    from vllm.model_executor.layers.utils import check_cpu_sgl_kernel

    weights = torch.randint(-127, 127, (num_outputs, num_inputs), dtype=torch.int8)
    scales = torch.full((num_outputs, 1), 0.01, dtype=torch.float32)
    rows = torch.randn(_ROWS, num_inputs)
    if check_cpu_sgl_kernel(num_outputs, num_inputs, torch.int8):
        kernels: Any = torch.ops._C  # noqa: SLF001 (where vLLM's kernels are)
        packed = kernels.convert_weight_packed(weights)
        is_vnni = True
        return lambda: kernels.int8_scaled_mm_with_quant(
            rows, packed, scales, None, rows.dtype, is_vnni
        )
    handler = ops.create_onednn_scaled_mm(
        weights.t(),
        scales,
        rows.dtype,
        dynamic_quant=True,
        use_azp=False,
        primitive_cache_size=32,
    )
    quantized, row_scales, _ = ops.onednn_scaled_int8_quant(rows, symmetric=True)
    out = torch.empty((_ROWS, num_outputs), dtype=rows.dtype)
    return lambda: ops.onednn_scaled_mm(handler, quantized, out, row_scales, None, None, None)


def _float_product(num_inputs: int, num_outputs: int, dtype: "torch.dtype") -> Callable[[], object]:
    """Return vLLM's product for layers that are not quantized, with weights packed before."""
    import torch
    from vllm import _custom_ops as ops

    weights = torch.randn(num_outputs, num_inputs, dtype=dtype)
    rows = torch.randn(_ROWS, num_inputs, dtype=dtype)
    handler = ops.create_onednn_mm(weights.t(), 32)
    return lambda: ops.onednn_mm(handler, rows, None)


def _bytes_per_s() -> float:
    """Return the bytes per second of reading or of copying, whichever is more."""
    import torch

    one = torch.ones(_BUFFER_BYTES // 4, dtype=torch.float32)
    other = torch.empty_like(one)
    copied = 2 * _BUFFER_BYTES / _seconds(lambda: other.copy_(one))
    return max(copied, _BUFFER_BYTES / _seconds(one.sum))


def _seconds(call: Callable[[], object]) -> float:
    """Return the median seconds of a call; the first two are not counted."""
    call()
    call()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < _MIN_REPEATS or time.perf_counter() - began < _REPEAT_S:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


if __name__ == "__main__":
    main()
