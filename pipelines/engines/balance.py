"""How many tokens and sequences fill an engine step: the formulas, without any device.

Source: shared facts of this project (docs/decisions/0010); the ridge is the roofline's.
"""

from pipelines.engines.model_size import ModelSize
from schemas.device_limits import DeviceLimits
from schemas.workloads import Workload

WEIGHT_READS_PER_STEP = 16.0
"""A step should compute so many times longer than it takes to read the weights once."""
MIN_STEP_S = 0.02
"""... and no shorter than this: Python between two steps takes milliseconds."""
MIN_GPU_TOKENS, MAX_GPU_TOKENS = 2048, 16384
"""Below, prefill is cut into too many pieces; above, activations take the KV cache's memory."""
KV_MARGIN = 0.9
"""Of the KV cache is planned for: lengths are predictions, and a preemption computes twice."""


def ridge_tokens(model: ModelSize, limits: DeviceLimits) -> float:
    """Return the tokens of a step at which computing takes as long as reading the weights.

    2 x weights x tokens / operations per second = weight bytes / bytes per second.
    """
    operations = limits.int8_ops_per_s if model.is_int8 else limits.float_ops_per_s
    return model.weight_bytes / limits.bytes_per_s * operations / (2 * model.num_weights)


def batched_tokens(model: ModelSize, limits: DeviceLimits) -> int:
    """Return the tokens of a step, a power of two within the bounds of a GPU.

    So many that reading the weights is 1/16 of the step, and that it takes 20 ms at the least.
    """
    operations = limits.int8_ops_per_s if model.is_int8 else limits.float_ops_per_s
    for_weights = WEIGHT_READS_PER_STEP * ridge_tokens(model, limits)
    for_python = MIN_STEP_S * operations / (2 * model.num_weights)
    wanted = int(max(for_weights, for_python))
    return min(MAX_GPU_TOKENS, max(MIN_GPU_TOKENS, power_of_two_from(wanted)))


def balanced_num_seqs(num_batched_tokens: int, workload: Workload) -> int:
    """Return how many sequences fill a step, at least 1.

    With N running, a step decodes N tokens, and N / output of them end and are replaced, whose
    prompts take N x uncached / output more: N = batched tokens x output / (uncached + output).
    """
    output = workload.mean_output_tokens
    return max(1, round(num_batched_tokens * output / (workload.mean_uncached_tokens + output)))


def kv_num_seqs(kv_bytes: int, token_bytes: int, workload: Workload) -> int:
    """Return how many sequences of the heaviest batch the KV cache holds at once."""
    return max(1, int(KV_MARGIN * kv_bytes / (token_bytes * workload.heaviest_mean_tokens)))


def power_of_two_from(number: int) -> int:
    """Return the smallest power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()
