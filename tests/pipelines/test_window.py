"""What a window lets into an engine, counted in the steps of a simulated one."""

import math
import random
from itertools import count

import pytest

from pipelines.engines.simulator import SimulatedEngine
from pipelines.feed import Feed
from pipelines.ordering import ordered, with_predictions
from pipelines.prediction import Prediction, fixed_lengths
from pipelines.window import Held, Window
from schemas.output_lengths import OutputLengths
from schemas.requests import SamplingSettings, StepStats
from tests.pipelines.test_feed import AskOnce, cut, row
from tests.pipelines.test_ordering import requests as index_rows

UNKNOWN = Prediction(basis="a test", lengths=OutputLengths())
MAX_TOKENS = 512


def lengths_of(num_requests: int, *, seed: int = 0) -> list[tuple[int, int]]:
    """(prompt, output) tokens: lognormal, in the mean 113 and 38."""
    draw = random.Random(seed)

    def length(mean: float) -> int:
        return max(1, round(draw.lognormvariate(math.log(mean) - 0.18, 0.6)))

    return [(length(113), min(MAX_TOKENS, length(38))) for _ in range(num_requests)]


def steps_of(
    lengths: list[tuple[int, int]],
    *,
    prediction: Prediction = UNKNOWN,
    max_tokens: int = MAX_TOKENS,
    window: Window | None = None,
    **engine_fields: int,
) -> list[StepStats]:
    """The steps that a simulated engine makes of these requests, fed in this order."""
    outputs = [output for _, output in lengths]
    engine = SimulatedEngine(
        length_of=lambda request: outputs[request.number],
        **{"max_num_seqs": 32, "max_num_batched_tokens": 512, **engine_fields},
    )
    batch = cut(0, [row(n, prompt) for n, (prompt, _) in enumerate(lengths)])
    sampling = SamplingSettings(max_tokens=max_tokens)
    feed = Feed(iter([batch]), AskOnce(), sampling, prediction)
    steps: list[StepStats] = []
    while not feed.is_done:
        engine.submit(feed.next_requests(window or Window.of(engine.facts)))
        poll = engine.poll(0.0)
        steps += poll.steps
        for answer in poll.answers:
            feed.answered(answer)
    return steps


def in_plan_order(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """These requests as a plan orders them that knows their output lengths."""
    rows = index_rows([prompt for prompt, _ in lengths]).with_columns(
        max_output_tokens=_int32([output for _, output in lengths])
    )
    found = ordered(with_predictions(rows, fixed_lengths("a test")), max_batch_tokens=10**9)
    return [lengths[number] for number in found["number"]]


def _int32(values: list[int]):
    import polars as pl

    return pl.Series(values, dtype=pl.Int32)


def num_preemptions(steps: list[StepStats]) -> int:
    return sum(step.num_preemptions for step in steps)


def tail_fraction(steps: list[StepStats]) -> float:
    """The share of steps at the end in which less than half of the median sequences run."""
    running = [step.num_running for step in steps]
    half = sorted(running)[len(running) // 2] / 2
    num_tail = next(n for n in count() if running[-1 - n] >= half)
    return num_tail / len(running)


@pytest.mark.parametrize(("num_requests", "num_seqs"), [(96, 16), (192, 32), (2000, 256)])
def test_in_plan_order_steps_are_close_to_the_fewest_and_the_tail_is_short(num_requests, num_seqs):
    lengths = lengths_of(num_requests)
    steps = steps_of(in_plan_order(lengths), max_num_seqs=num_seqs)

    outputs = [output for _, output in lengths]
    fewest = max(max(outputs), math.ceil(sum(outputs) / num_seqs))
    prefill = math.ceil(sum(prompt for prompt, _ in lengths) / 512)
    assert len(steps) <= 1.05 * fewest + prefill
    assert tail_fraction(steps) <= 0.05


def test_plan_order_takes_fewer_steps_than_arrival_order():
    lengths = lengths_of(192)

    assert len(steps_of(in_plan_order(lengths))) < 0.9 * len(steps_of(lengths))


def test_a_small_kv_cache_makes_requests_wait_and_preempts_none():
    lengths = lengths_of(200)
    all_at_once = Window(num_requests=200, num_tokens=None)
    room = {"max_tokens": 256, "kv_capacity_tokens": 3000}

    assert num_preemptions(steps_of(lengths, window=all_at_once, **room)) > 0
    assert num_preemptions(steps_of(lengths, **room)) == 0


def test_answers_that_were_expected_fill_the_kv_cache_better_than_what_is_possible():
    known = Prediction(basis="a test", lengths=OutputLengths.of(lengths_of(500, seed=1)))
    lengths, room = lengths_of(300), {"kv_capacity_tokens": 5000}
    expected = steps_of(lengths, prediction=known, **room)
    possible = steps_of(lengths, prediction=fixed_lengths("a test"), **room)

    assert num_preemptions(expected) == num_preemptions(possible) == 0
    assert len(expected) < 0.7 * len(possible)


def test_what_this_run_answered_is_learned_from():
    lengths, room = lengths_of(1200), {"kv_capacity_tokens": 5000}
    learned = steps_of(lengths, **room)
    possible = steps_of(lengths, prediction=fixed_lengths("a test"), **room)

    assert num_preemptions(learned) == 0
    assert len(learned) < 0.7 * len(possible)


@pytest.mark.parametrize("num_seqs", [4, 64, 512])
def test_the_queue_of_an_engine_is_not_empty_before_the_end(num_seqs):
    lengths = [(9, 1 + n % 3) for n in range(6 * num_seqs)]
    steps = steps_of(lengths, max_num_seqs=num_seqs, max_num_batched_tokens=10**6)

    assert all(step.num_running == num_seqs for step in steps[:6])


def test_only_the_largest_that_can_run_at_once_count():
    held = Held()
    for number, size in enumerate([50, 40, 10, 10]):
        held.add(number, size)
    two = Window(num_requests=9, num_tokens=100, num_running=2)

    assert held.has_room(50, two)
    assert not held.has_room(51, two)
    held.remove(0)
    assert held.has_room(60, two)


def test_tokens_are_counted_in_whole_blocks():
    held = Held()
    held.add(0, 33)

    assert held.has_room(32, Window(num_requests=9, num_tokens=96, block_size=32))
    assert not held.has_room(33, Window(num_requests=9, num_tokens=96, block_size=32))
