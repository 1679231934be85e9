import math
import time

import pytest

from pipelines.engines import EchoEngine, EchoFaults
from schemas.errors import EngineDiedError
from schemas.requests import EngineRequest, SamplingSettings

MARKER = (900, 901)


class FakeClock:
    """Time that passes only in `sleep`."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


def requests(count, *, start=0, prompt=(1, 2, 3, 4), group=0, **sampling):
    settings = SamplingSettings(**{"max_tokens": 2, **sampling})
    return [
        EngineRequest(number=n, group=group, prompt_token_ids=(n, *prompt), sampling=settings)
        for n in range(start, start + count)
    ]


def all_answers(engine):
    answers = []
    while poll := engine.poll(1000.0).answers:
        answers += poll
    return answers


def test_each_request_is_answered_once_with_the_end_of_its_prompt():
    with EchoEngine(max_num_seqs=3) as engine:
        engine.submit(requests(10))
        answers = all_answers(engine)

    assert [answer.number for answer in answers] == list(range(10))
    assert {answer.token_ids for answer in answers} == {(3, 4)}
    assert {answer.finish_reason for answer in answers} == {"length"}


def test_a_prompt_shorter_than_max_tokens_ends_by_itself():
    engine = EchoEngine()
    engine.submit(requests(1, max_tokens=100))

    (answer,) = engine.poll(1.0).answers
    assert (answer.token_ids, answer.finish_reason) == ((0, 1, 2, 3, 4), "stop")


def test_answers_can_be_any_function_of_the_request():
    engine = EchoEngine(answer=lambda request: (request.number,) * 2)
    engine.submit(requests(3))

    assert [answer.token_ids for answer in all_answers(engine)] == [(0, 0), (1, 1), (2, 2)]


def test_an_allowed_token_is_chosen_with_log_probabilities_that_add_up_to_one():
    choices = (50, 60, 70)
    engine = EchoEngine()
    engine.submit(requests(9, max_tokens=1, allowed_token_ids=choices, logprob_token_ids=choices))

    answers = all_answers(engine)
    for answer in answers:
        shares = [math.exp(one) for one in answer.logprobs]
        assert sum(shares) == pytest.approx(1.0)
        assert choices[shares.index(max(shares))] == answer.token_ids[0]
    assert {answer.token_ids[0] for answer in answers} == set(choices)


def test_a_request_that_a_model_could_not_take_is_answered_with_an_error():
    engine = EchoEngine(max_model_len=6)
    engine.submit([*requests(1, max_tokens=2), *requests(1, start=1, max_tokens=1)])

    refused, answered = engine.poll(1.0).answers
    assert "more than max_model_len 6" in refused.error
    assert answered.error is None


def test_steps_name_every_token_of_every_group():
    engine = EchoEngine(max_num_seqs=4)
    engine.submit([*requests(3, group=7), *requests(3, start=3, group=8)])

    first, second = engine.poll(1.0), engine.poll(1.0)
    work = [one for poll in (first, second) for step in poll.steps for one in step.work]
    assert [(one.group, one.num_prefill_tokens, one.num_decode_tokens) for one in work] == [
        (7, 15, 6),
        (8, 5, 2),
        (8, 10, 4),
    ]
    assert [one.num_forward_tokens for one in work] == [18, 6, 12]
    assert first.steps[0].num_waiting == 2


def test_at_a_speed_each_step_takes_its_tokens_time():
    clock = FakeClock()
    engine = EchoEngine(max_num_seqs=10, tokens_per_s=70.0, clock=clock)
    engine.submit(requests(20))

    steps = [engine.poll(5.0).steps[0] for _ in range(2)]

    # 10 requests of 5 prompt and 2 output tokens.
    assert [(step.started_s, step.duration_s) for step in steps] == [(100.0, 1.0), (101.0, 1.0)]
    assert clock.time == 102.0


def test_a_poll_waits_no_longer_than_it_was_told_and_the_step_goes_on():
    clock = FakeClock()
    engine = EchoEngine(tokens_per_s=7.0, clock=clock)
    engine.submit(requests(1))

    assert engine.poll(0.4).steps == ()
    assert clock.time == pytest.approx(100.4)
    assert len(engine.poll(5.0).answers) == 1
    assert clock.time == pytest.approx(101.0)


def test_it_works_while_its_caller_does_something_else():
    clock = FakeClock()
    engine = EchoEngine(max_num_seqs=1, tokens_per_s=7.0, clock=clock)
    engine.submit(requests(5))
    clock.sleep(3.5)

    poll = engine.poll(0.0)
    assert [step.started_s for step in poll.steps] == [100.0, 101.0, 102.0]
    assert len(poll.answers) == 3


def test_a_pause_without_requests_is_in_no_step():
    clock = FakeClock()
    engine = EchoEngine(tokens_per_s=7.0, clock=clock)
    engine.submit(requests(1))
    engine.poll(5.0)
    clock.sleep(50.0)
    engine.submit(requests(1, start=1))

    assert engine.poll(5.0).steps[0].started_s == pytest.approx(151.0)


@pytest.mark.parametrize(
    "faults", [EchoFaults(dies_at=4), EchoFaults(poison=MARKER)], ids=["by number", "by poison"]
)
def test_it_dies_at_the_request_it_is_told_to_and_stays_dead(faults):
    engine = EchoEngine(max_num_seqs=10, faults=faults)
    engine.submit([*requests(3), *requests(1, start=3, prompt=(5, *MARKER, 6)), *requests(2)])

    assert [answer.number for answer in engine.poll(1.0).answers] == [0, 1, 2]
    for attempt in (lambda: engine.poll(1.0), lambda: engine.poll(1.0), lambda: engine.submit([])):
        with pytest.raises(EngineDiedError) as death:
            attempt()
        assert not death.value.is_stall


def test_it_can_die_at_every_start():
    with pytest.raises(EngineDiedError):
        _ = EchoEngine(faults=EchoFaults(dies_at_start=True)).facts


@pytest.mark.parametrize(
    "faults", [EchoFaults(hang=MARKER), EchoFaults(drops_at=2)], ids=["hangs", "drops"]
)
def test_a_request_that_is_never_answered_is_a_stall_after_the_time_for_one(faults):
    clock = FakeClock()
    engine = EchoEngine(faults=faults, stall_timeout_s=3.0, clock=clock)
    engine.submit([*requests(1), *requests(1, start=1, prompt=MARKER)])

    assert [answer.number for answer in engine.poll(1.0).answers] == [0]
    assert engine.poll(2.0).answers == ()
    with pytest.raises(EngineDiedError) as death:
        engine.poll(2.0)
    assert death.value.is_stall
    assert clock.time == pytest.approx(103.0)


def test_it_can_answer_twice_and_for_a_number_that_nobody_asked():
    engine = EchoEngine(faults=EchoFaults(answers_twice_at=1, answers_unknown_at=2))
    engine.submit(requests(3))

    assert [answer.number for answer in engine.poll(1.0).answers] == [0, 0, 10**9, 2]


def test_after_a_reset_only_new_requests_are_answered():
    engine = EchoEngine(tokens_per_s=1.0, clock=FakeClock())
    engine.submit(requests(5))
    engine.poll(0.1)

    engine.reset()
    engine.submit(requests(2, start=50))

    assert [answer.number for answer in all_answers(engine)] == [50, 51]


def test_it_answers_more_than_20000_requests_a_second():
    """On a quiet machine it is well above 100,000; the bound leaves room for a busy one."""
    engine = EchoEngine()
    asked = requests(20_000, prompt=tuple(range(100)), max_tokens=16)
    began = time.process_time()
    for start in range(0, len(asked), 2_000):
        engine.submit(asked[start : start + 2_000])
    num_answers = len(all_answers(engine))

    assert num_answers == len(asked)
    assert num_answers / (time.process_time() - began) > 20_000
