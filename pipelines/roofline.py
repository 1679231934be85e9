"""Roofline: the least time that a device needs for the work of an engine step, in seconds.

Pure formulas. A step multiplies for every token that goes through the layers, and moves the
weights once and the KV cache of every sequence in it; the longer of the two is its limit:

    linear     2 x P_lin x forward tokens                      at the INT8 rate (or float)
    attention  4 x q_heads x head_dim x layers x pairs         at the float rate
    lm_head    2 x hidden x vocab x rows that sample           at the float rate
    moved      weight bytes + KV bytes of context and new tokens
    limit      max(sum of operations / rates, moved / bandwidth)

T tokens on c cached ones are T*c + T*(T+1)/2 query-key pairs. Cached prompt tokens are not
computed, so they are in no sum but that of the context. What an engine does besides (norms,
activations, quantization, sampling, Python) has no part in the limit.

On a CPU without BF16 instructions the engine computes in FP32, INT8 weights stay INT8, and
without VNNI the INT8 rate may lie below the FP32 rate: the limit is that of the kernels that
are used, not of the best that could be written.

Source: the counts follow Kaplan et al. 2020 (2 operations per weight and token) and the
roofline of Williams, Waterman, Patterson 2009. vLLM's own estimate takes W8A8 weights for half
a byte and doubles causal prefill attention.
"""

from collections.abc import Sequence
from typing import Literal

from schemas.model_shape import ModelShape, Roofline
from schemas.requests import StepWork

Bound = Literal["compute", "bandwidth"]
"""What a limit comes from: arithmetic, or moving bytes."""


def compute_s(work: StepWork, roofline: Roofline) -> float:
    """Return the seconds that one device needs to multiply for this work, at its limit."""
    shape, limits = roofline.shape, roofline.limits
    linear = 2 * shape.num_linear_params * work.num_forward_tokens
    attention = 4 * shape.num_q_heads * shape.head_dim * shape.num_layers * work.num_query_key_pairs
    lm_head = 2 * shape.hidden_size * shape.vocab_size * work.num_decode_tokens
    linear_rate = limits.int8_ops_per_s if shape.is_int8 else limits.float_ops_per_s
    return linear / linear_rate + (attention + lm_head) / limits.float_ops_per_s


def kv_bytes(work: StepWork, shape: ModelShape) -> int:
    """Return the KV cache bytes that this work reads (its context) and writes (its tokens)."""
    return (work.num_context_tokens + work.num_forward_tokens) * shape.kv_bytes_per_token


def moved_weight_bytes(step: Sequence[StepWork], shape: ModelShape) -> float:
    """Return the weight bytes that a step reads: the layers', and lm_head's if it samples."""
    is_sampling = any(work.num_decode_tokens for work in step)
    return shape.linear_bytes + (shape.lm_head_bytes if is_sampling else 0)


def bandwidth_s(step: Sequence[StepWork], roofline: Roofline) -> float:
    """Return the seconds that one device needs to move what this step reads and writes."""
    shape = roofline.shape
    moved = moved_weight_bytes(step, shape) + sum(kv_bytes(work, shape) for work in step)
    return moved / roofline.limits.bytes_per_s


def step_limit_s(step: Sequence[StepWork], roofline: Roofline) -> tuple[float, Bound]:
    """Return the least device-seconds that this step can take, and what bounds it.

    Device-seconds: n devices that share a step evenly need an n-th each.
    """
    compute = sum(compute_s(work, roofline) for work in step)
    bandwidth = bandwidth_s(step, roofline)
    return (compute, "compute") if compute >= bandwidth else (bandwidth, "bandwidth")


def step_weights(step: Sequence[StepWork], roofline: Roofline | None) -> tuple[float, ...]:
    """Return what each group's work weighs in this step; only their ratios count.

    By what bounds the step. Compute: seconds of arithmetic. Bandwidth: bytes moved, of which
    the weights' are shared by the tokens that went through the layers, since one read serves
    them all. Without a roofline (an unknown model or device): tokens computed, prompt and
    output alike.
    """
    by_tokens = tuple(float(work.num_prefill_tokens + work.num_decode_tokens) for work in step)
    if roofline is None:
        return by_tokens
    _, bound = step_limit_s(step, roofline)
    if bound == "compute":
        return tuple(compute_s(work, roofline) for work in step)
    num_forward = sum(work.num_forward_tokens for work in step)
    if not num_forward:
        return by_tokens
    per_token = moved_weight_bytes(step, roofline.shape) / num_forward
    return tuple(
        work.num_forward_tokens * per_token + kv_bytes(work, roofline.shape) for work in step
    )
