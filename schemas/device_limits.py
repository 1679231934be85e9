"""What one device can do at most: the ceiling that throughput is measured against."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """Multiply-adds (two operations each) and bytes per second of one device, at most.

    `float_ops_per_s` is in the type in which the engine computes what is not INT8: BF16, or
    FP32 on a CPU without BF16 instructions. Each rate is dense: no sparsity is counted.
    `bytes_per_s` counts bytes read and written. `source` says where they are from: a maker's
    datasheet, or what was measured, on what and when.
    """

    int8_ops_per_s: float
    float_ops_per_s: float
    bytes_per_s: float
    source: str
