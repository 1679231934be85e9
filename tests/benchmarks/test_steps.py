import pytest

from benchmarks.steps import min_steps, tail_fraction
from schemas.requests import StepStats


def step(*, num_running: int, num_waiting: int = 0, duration_s: float = 1.0) -> StepStats:
    return StepStats(
        started_s=0.0,
        duration_s=duration_s,
        num_running=num_running,
        num_waiting=num_waiting,
        kv_usage_fraction=0.0,
        num_preemptions=0,
        work=(),
    )


def test_the_longest_answer_bounds_the_steps_where_few_sequences_run():
    assert min_steps([100, 3, 3], 0, max_num_seqs=64, max_num_batched_tokens=512) == 100


def test_the_sum_of_answers_bounds_the_steps_where_many_sequences_run():
    assert min_steps([10] * 640, 0, max_num_seqs=64, max_num_batched_tokens=512) == 100


def test_the_tokens_of_prompts_and_answers_bound_the_steps_where_they_fill_them():
    """Prefill added whole was a bound that a real run went below: 128 steps of 150."""
    prompts = 64 * 512 - 9

    assert min_steps([2] * 9, prompts, max_num_seqs=64, max_num_batched_tokens=512) == 64
    assert min_steps([2] * 9, prompts + 1, max_num_seqs=64, max_num_batched_tokens=512) == 65
    assert min_steps([100], 513, max_num_seqs=64, max_num_batched_tokens=512) == 100


def test_the_tail_is_what_comes_after_half_of_the_steady_mean():
    busy = [step(num_running=8, num_waiting=2)] * 6
    tail = [step(num_running=4), step(num_running=3), step(num_running=1, duration_s=2.0)]

    assert tail_fraction(busy + tail) == pytest.approx(3.0 / 10.0)


def test_a_dip_in_the_middle_is_no_tail():
    steps = [step(num_running=n, num_waiting=1) for n in (8, 1, 1, 8)]

    assert tail_fraction(steps) == 0.0


def test_without_steps_there_is_no_tail():
    assert tail_fraction([]) == 0.0
