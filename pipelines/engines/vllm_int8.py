"""INT8 weights on a CPU that cannot multiply INT8 exactly: computed as floats instead.

Without VNNI (AVX2 alone) oneDNN adds two INT8 products in 16 bits, which saturate: matrix
products of SmolLM2's layers were off by 0.9 to 2.2 % of their norm, as much again as
quantizing itself, and three times slower than floats at the sizes of decoding (docs/log.md).
The weights here stay the checkpoint's INT8 values times their scales; activations are not
quantized. Imported by `vllm_loading` alone.

Remove when oneDNN's INT8 product is exact without VNNI.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

REPLACED_KERNELS = "CPUInt8ScaledMMLinearKernel,ZentorchInt8ScaledMMLinearKernel"
"""What VLLM_DISABLED_KERNELS says, so that vLLM chooses the one that is registered here."""


def register() -> None:
    """Offer vLLM a kernel for INT8 layers that multiplies floats; before the model is loaded.

    Source: vLLM 0.32, model_executor/kernels/linear, `register_linear_kernel`; the product is
    its own `onednn_mm` with weights packed once, as for layers that are not quantized.
    """
    import torch
    from vllm import _custom_ops as ops
    from vllm.model_executor.kernels.linear import register_linear_kernel
    from vllm.model_executor.kernels.linear.scaled_mm import Int8ScaledMMLinearKernel
    from vllm.platforms import PlatformEnum

    class FloatInt8LinearKernel(Int8ScaledMMLinearKernel):
        """Weights as floats, packed at load."""

        @classmethod
        def is_supported(
            cls,
            compute_capability: int | None = None,
        ) -> tuple[bool, str | None]:
            del compute_capability
            return True, None

        @classmethod
        def can_implement(cls, c: object) -> tuple[bool, str | None]:
            del c
            return True, None

        def process_weights_after_loading(self, layer: "torch.nn.Module") -> None:
            weight_name, scale_name, *_ = self.layer_param_names
            floats = getattr(layer, weight_name).to(torch.get_default_dtype())
            scale = getattr(layer, scale_name).reshape(-1, 1).to(floats.dtype)
            if 1 < scale.shape[0] < floats.shape[0]:  # one scale for each of the layers fused
                widths = torch.tensor(layer.logical_widths)
                scale = scale.repeat_interleave(widths, dim=0)
            floats = floats * scale
            self._product = ops.create_onednn_mm(floats.t(), 32)
            setattr(layer, weight_name, None)

        def apply_weights(
            self,
            layer: "torch.nn.Module",
            x: "torch.Tensor",
            bias: "torch.Tensor | None" = None,
        ) -> "torch.Tensor":
            del layer
            return ops.onednn_mm(self._product, x, bias)

    register_linear_kernel(FloatInt8LinearKernel, PlatformEnum.CPU, "int8")
