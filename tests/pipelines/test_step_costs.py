import random

import pytest

from pipelines.step_costs import PLAIN_COSTS, Requests, StepAdder, cost, step_costs
from schemas.requests import StepStats, StepWork
from schemas.step_sums import StepSums


def step(prefill: int, running: int, seconds: float) -> StepStats:
    """A step that computes so many prompt tokens and one output token of each running request."""
    work = StepWork(
        group=0,
        num_prefill_tokens=prefill,
        num_decode_tokens=running,
        num_context_tokens=0,
        num_forward_tokens=prefill + running,
        num_query_key_pairs=prefill * prefill // 2 + running * 100,
    )
    return StepStats(
        started_s=0.0,
        duration_s=seconds,
        num_running=running,
        num_waiting=0,
        kv_usage_fraction=0.0,
        num_preemptions=0,
        work=(work,),
    )


def added(costs: tuple[float, float, float, float], *, num_steps: int = 200) -> StepSums:
    """Sums over steps of many mixes that cost exactly this."""
    adder, numbers = StepAdder(), random.Random(7)
    for _ in range(num_steps):
        prefill, running = numbers.choice([0, 0, 0, 300, 500]), numbers.randint(1, 64)
        one = step(prefill, running, 0.0)
        work = one.work[0]
        seconds = (
            costs[0]
            + costs[1] * work.num_forward_tokens
            + costs[2] * work.num_decode_tokens
            + costs[3] * work.num_query_key_pairs
        )
        adder.add(step(prefill, running, seconds))
    return adder.sums()


def requests(num: int, prompt: float, cached: float, output: float) -> Requests:
    return Requests(
        num_requests=num,
        num_prompt_tokens=prompt,
        num_cached_tokens=cached,
        num_output_tokens=output,
    )


def test_the_costs_that_made_the_steps_are_found_again():
    made = (0.02, 1e-3, 5e-4, 1e-7)

    assert step_costs(added(made)) == pytest.approx(made, rel=1e-3)


def test_no_cost_is_below_zero_where_a_straight_fit_would_make_it_so():
    found = step_costs(added((0.02, 1e-3, -2e-4, 0.0)))

    assert min(found) >= 0
    assert found[1] > 0


def test_too_few_steps_say_no_more_than_that_tokens_are_alike():
    assert step_costs(added((0.02, 1e-3, 5e-4, 0.0), num_steps=20)) == PLAIN_COSTS
    assert step_costs(StepSums()) == PLAIN_COSTS


def test_the_sums_of_two_attempts_are_those_of_all_their_steps():
    one, two = StepAdder(), StepAdder()
    both = StepAdder()
    for adder, seconds in ((one, 0.1), (two, 0.3)):
        adder.add(step(100, 8, seconds))
        both.add(step(100, 8, seconds))

    assert one.sums().plus(two.sums()) == both.sums()
    assert both.sums().sampled_per_step == 8


def test_steps_are_what_the_output_takes_at_the_usual_width_or_what_the_longest_answer_takes():
    only_steps = (1.0, 0.0, 0.0, 0.0)

    assert cost([requests(100, 1000, 0, 5000)], only_steps, 50.0) == 100
    assert cost([requests(2, 20, 0, 800)], only_steps, 50.0) == 400


def test_cached_prompt_tokens_cost_nothing():
    by_forward = (0.0, 1.0, 0.0, 0.0)

    assert cost([requests(10, 1000, 400, 10)], by_forward, 0.0) == 600


def test_prompts_on_cached_tokens_pay_for_the_pairs_with_them():
    by_pairs = (0.0, 0.0, 0.0, 1.0)

    assert cost([requests(1, 30, 10, 1)], by_pairs, 0.0) == 20 * 10 + 20 * 21 / 2
