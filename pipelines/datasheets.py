"""What GPUs can do at most, by their makers' datasheets.

Dense rates: the sheets' headline numbers count structured sparsity and are twice as high. The
float rate is BF16's (FP16's on a T4, which has no BF16) on tensor cores. The entries are typed
from the sheets and no device here has confirmed them.
"""

import re
from dataclasses import dataclass
from typing import Final

from schemas.device_limits import DeviceLimits

_T, _G = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class _Sheet:
    """One GPU: how its driver names it, its limits in T operations and G bytes per second."""

    name: str
    int8: float
    floats: float
    bandwidth: float
    title: str


_SHEETS: Final = (
    _Sheet(r"H200", 1979, 989, 4800, "NVIDIA H200 Tensor Core GPU datasheet"),
    _Sheet(r"H100 PCIe", 1513, 756, 2000, "NVIDIA H100 Tensor Core GPU datasheet, PCIe"),
    _Sheet(r"H100 NVL", 1671, 835, 3900, "NVIDIA H100 Tensor Core GPU datasheet, NVL"),
    _Sheet(r"H100", 1979, 989, 3350, "NVIDIA H100 Tensor Core GPU datasheet, SXM"),
    _Sheet(r"A100.*40GB", 624, 312, 1555, "NVIDIA A100 Tensor Core GPU datasheet, 40 GB"),
    _Sheet(r"A100", 624, 312, 2039, "NVIDIA A100 Tensor Core GPU datasheet, 80 GB SXM"),
    _Sheet(r"L40S", 733, 362, 864, "NVIDIA L40S GPU datasheet"),
    _Sheet(r"A10", 250, 125, 600, "NVIDIA A10 Tensor Core GPU datasheet"),
    _Sheet(r"L4", 242, 121, 300, "NVIDIA L4 Tensor Core GPU datasheet"),
    _Sheet(r"T4", 130, 65, 320, "NVIDIA T4 Tensor Core GPU datasheet"),
)
"""The first that matches counts; a whole word, so that an A10G or L40 is none of them."""


def datasheet_limits(device_name: str) -> DeviceLimits | None:
    """Return what one GPU of this name can do at most; None for one that is not listed."""
    for sheet in _SHEETS:
        if re.search(rf"\b(?:{sheet.name})\b", device_name):
            return DeviceLimits(
                int8_ops_per_s=sheet.int8 * _T,
                float_ops_per_s=sheet.floats * _T,
                bytes_per_s=sheet.bandwidth * _G,
                source=f"{sheet.title} (dense)",
            )
    return None
