"""Expected values are worked out by hand, for a model of round numbers."""

import pytest

from pipelines.roofline import bandwidth_s, compute_s, step_limit_s, step_weights
from schemas.device_limits import DeviceLimits
from schemas.model_shape import ModelShape, Roofline
from schemas.requests import StepWork

SHAPE = ModelShape(
    num_linear_params=1000,
    num_layers=2,
    num_q_heads=4,
    num_kv_heads=2,
    head_dim=8,
    hidden_size=32,
    vocab_size=100,
    weight_bytes=1.0,
    value_bytes=2,
    kv_value_bytes=2,
    is_int8=True,
)
LIMITS = DeviceLimits(int8_ops_per_s=1e6, float_ops_per_s=1e5, bytes_per_s=1e6, source="a test")
ROOFLINE = Roofline(shape=SHAPE, limits=LIMITS)


def work(group=0, *, prefill=0, decode=0, context=0, forward=0, pairs=0) -> StepWork:
    return StepWork(
        group=group,
        num_prefill_tokens=prefill,
        num_decode_tokens=decode,
        num_context_tokens=context,
        num_forward_tokens=forward,
        num_query_key_pairs=pairs,
    )


def prompt(num_tokens: int, group: int = 0) -> StepWork:
    """A whole prompt and its first output token."""
    pairs = num_tokens * (num_tokens + 1) // 2
    return work(group, prefill=num_tokens, decode=1, forward=num_tokens, pairs=pairs)


def decode(context: int, group: int = 0) -> StepWork:
    """One sequence's next token."""
    return work(group, decode=1, context=context, forward=1, pairs=context + 1)


def test_a_prompt_is_multiplied_by_weights_attention_and_one_row_of_lm_head():
    linear = 2 * 1000 * 10 / 1e6
    attention = 4 * 4 * 8 * 2 * 55 / 1e5
    lm_head = 2 * 32 * 100 * 1 / 1e5

    assert compute_s(prompt(10), ROOFLINE) == pytest.approx(linear + attention + lm_head)


def test_a_step_moves_weights_once_and_the_keys_and_values_of_every_sequence():
    kv_per_token = 2 * 2 * 2 * 8 * 2
    weights, lm_head = 1000, 32 * 100 * 2

    found = bandwidth_s([decode(9), decode(19)], ROOFLINE)

    assert found == pytest.approx((weights + lm_head + kv_per_token * (10 + 20)) / 1e6)


def test_a_step_that_samples_nothing_does_not_read_lm_head():
    chunk = work(prefill=5, forward=5, pairs=15)

    assert bandwidth_s([chunk], ROOFLINE) == pytest.approx((1000 + 128 * 5) / 1e6)


def test_long_prompts_are_bound_by_compute_and_single_tokens_by_bandwidth_on_a_fast_device():
    fast = DeviceLimits(int8_ops_per_s=1e9, float_ops_per_s=1e9, bytes_per_s=1e6, source="a test")
    roofline = Roofline(shape=SHAPE, limits=fast)

    assert step_limit_s([prompt(10_000)], roofline)[1] == "compute"
    assert step_limit_s([decode(9)], roofline) == (bandwidth_s([decode(9)], roofline), "bandwidth")


def test_without_int8_layers_multiply_at_the_float_rate():
    plain = ModelShape(**{**{f: getattr(SHAPE, f) for f in SHAPE.__slots__}, "is_int8": False})

    slower = compute_s(prompt(10), Roofline(shape=plain, limits=LIMITS))

    assert slower - compute_s(prompt(10), ROOFLINE) == pytest.approx(20000 / 1e5 - 20000 / 1e6)


def test_cached_tokens_cost_their_part_in_attention_alone():
    cached = work(prefill=2, decode=1, context=8, forward=2, pairs=2 * 8 + 3)

    linear, attention, lm_head = 4000 / 1e6, 256 * 19 / 1e5, 6400 / 1e5
    assert compute_s(cached, ROOFLINE) == pytest.approx(linear + attention + lm_head)


def test_a_step_bound_by_compute_is_shared_by_arithmetic():
    step = [prompt(100, group=0), decode(9, group=1)]

    assert step_limit_s(step, ROOFLINE)[1] == "compute"
    assert step_weights(step, ROOFLINE) == tuple(compute_s(one, ROOFLINE) for one in step)


def test_a_step_bound_by_bandwidth_is_shared_by_tokens_and_by_the_context_that_each_reads():
    fast = DeviceLimits(int8_ops_per_s=1e9, float_ops_per_s=1e9, bytes_per_s=1e6, source="a test")
    short, long = step_weights([decode(9, 0), decode(99, 1)], Roofline(shape=SHAPE, limits=fast))

    assert (short, long) == ((1000 + 6400) / 2 + 128 * 10, (1000 + 6400) / 2 + 128 * 100)


def test_without_a_roofline_a_step_is_shared_by_tokens():
    assert step_weights([prompt(99, 0), decode(9, 1)], None) == (100.0, 1.0)
