"""INT8 layers multiplied as floats, by vLLM's own choice of a kernel."""

import os
import subprocess
import sys

import pytest

from pipelines.engines.vllm_int8 import REPLACED_KERNELS

pytestmark = pytest.mark.engine

LARGEST_SUMS = """
import torch
from torch.nn import Module, Parameter
from vllm.platforms import current_platform
current_platform.import_kernels()
from pipelines.engines import vllm_int8
from vllm.model_executor.kernels.linear import init_int8_linear_kernel

vllm_int8.register()
kernel = init_int8_linear_kernel(True, False, True, "a layer")
layer = Module()
layer.logical_widths = [32]
layer.weight = Parameter(torch.full((32, 64), 127, dtype=torch.int8), requires_grad=False)
layer.weight_scale = Parameter(torch.linspace(0.1, 3.2, 32).reshape(32, 1))
kernel.process_weights_after_loading(layer)
found = kernel.apply_weights(layer, torch.full((3, 64), 2.0), torch.ones(32))
expected = 64 * 127 * 2.0 * torch.linspace(0.1, 3.2, 32) + 1.0
fused = init_int8_linear_kernel(False, False, True, "two layers in one")
layer.logical_widths = [8, 24]
layer.weight = Parameter(torch.full((32, 64), 127, dtype=torch.int8), requires_grad=False)
layer.weight_scale = Parameter(torch.tensor([0.5, 2.0]))
fused.process_weights_after_loading(layer)
both = fused.apply_weights(layer, torch.full((1, 64), 2.0))[0] / (64 * 127 * 2.0)
assert both.tolist() == [0.5] * 8 + [2.0] * 24, both
print("WRONG BY", float(((found - expected) / expected).abs().max()))
"""


def test_the_largest_sums_do_not_overflow():
    """With AVX2 alone oneDNN's INT8 product of these saturates at 16 bits."""
    environment = {**os.environ, "VLLM_DISABLED_KERNELS": REPLACED_KERNELS}

    ended = subprocess.run(
        [sys.executable, "-c", LARGEST_SUMS],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )

    line = next(one for one in ended.stdout.splitlines() if one.startswith("WRONG BY"))
    assert float(line.split()[-1]) < 1e-6
