import time
from pathlib import Path

import pytest

from jobs.engine_pool import EnginePool
from jobs.openers import EchoOpener, said_of_kept
from pipelines.engines import EchoEngine, EchoFaults
from pipelines.tools import EngineNeed
from schemas.checkpoints import Checkpoint
from schemas.engine_records import EngineStart
from schemas.errors import EngineDiedError
from schemas.job_spec import parse_job
from schemas.requests import EngineRequest, SamplingSettings

JOB = parse_job(
    {
        "name": "pooled",
        "input": {"uri": "in"},
        "prompt": {"column": "text"},
        "model": {"id": "m"},
        "output": {"uri": "out"},
    },
    source="test",
)


class CountingOpener(EchoOpener):
    """Opens engines that echo, with faults for the first, and keeps count."""

    def __init__(self, faults: EchoFaults | None = None) -> None:
        self.opened: list[EchoEngine] = []
        self.num_started = 0
        self._faults = faults

    def open(self, need, settings):
        del settings
        faults, self._faults = self._faults, None
        self.opened.append(EchoEngine(max_model_len=need.context_length, faults=faults))
        return self.opened[-1]

    def started(self, need, settings, facts):
        del need, settings, facts
        self.num_started += 1


def need(weights_hash: str = "w", context_length: int = 512) -> EngineNeed:
    checkpoint = Checkpoint(
        path=str(Path("nowhere")),
        model_id="m",
        model_revision=None,
        weights="int8",
        quantization=None,
        files=(),
        weights_hash=weights_hash,
    )
    return EngineNeed(job=JOB, checkpoint=checkpoint, context_length=context_length)


def requests(*numbers: int) -> list[EngineRequest]:
    sampling = SamplingSettings(max_tokens=2)
    return [
        EngineRequest(number=number, group=0, prompt_token_ids=(1, 2, 3), sampling=sampling)
        for number in numbers
    ]


def use(pool: EnginePool, wanted: EngineNeed) -> float:
    """Answer one request, and return the load that is on this use's bill."""
    with pool.lend(wanted) as engine:
        load_s = engine.facts.load_s
        engine.submit(requests(1))
        assert len(engine.poll(1.0).answers) == 1
        return load_s


def test_consecutive_runs_share_an_engine_that_loads_once():
    opener = CountingOpener()

    with EnginePool(opener) as pool:
        pool.num_runs_left = 2
        for _ in range(3):
            use(pool, need())
            pool.num_runs_left -= 1

    assert (len(opener.opened), opener.num_started) == (1, 1)


def test_the_time_between_two_runs_is_held_by_the_second():
    pool = EnginePool(CountingOpener())
    pool.num_runs_left = 1
    use(pool, need())
    freed = time.monotonic()
    time.sleep(0.05)

    with pool.lend(need()) as second:
        assert freed - 0.05 < second.held_since_s <= freed


def test_without_runs_to_follow_each_has_an_engine_of_its_own():
    opener = CountingOpener()
    pool = EnginePool(opener)

    use(pool, need())
    use(pool, need())

    assert len(opener.opened) == 2


@pytest.mark.parametrize(
    "other", [need(weights_hash="other"), need(context_length=513)], ids=["model", "length"]
)
def test_an_engine_that_does_not_serve_the_next_run_is_replaced_and_that_is_said(other):
    opener, notes = CountingOpener(), []
    pool = EnginePool(opener, on_note=notes.append)
    pool.num_runs_left = 1

    use(pool, need())
    use(pool, other)

    assert len(opener.opened) == 2
    assert notes[0].startswith("another engine is started: ")


def test_an_engine_that_died_is_not_lent_again():
    opener = CountingOpener(EchoFaults(dies_at_start=True))
    pool = EnginePool(opener)
    pool.num_runs_left = 1

    with pool.lend(need()) as engine, pytest.raises(EngineDiedError):
        _ = engine.facts
    use(pool, need())

    assert len(opener.opened) == 2


def test_an_engine_that_answers_what_was_not_asked_is_not_lent_again():
    opener = CountingOpener(EchoFaults(answers_unknown_at=1))
    pool = EnginePool(opener)
    pool.num_runs_left = 1

    with pool.lend(need()) as engine:
        engine.submit(requests(1))
        engine.poll(1.0)
    use(pool, need())

    assert len(opener.opened) == 2


def test_what_a_run_left_unanswered_is_not_answered_to_the_next():
    pool = EnginePool(CountingOpener())
    pool.num_runs_left = 1
    with pool.lend(need()) as engine:
        engine.submit(requests(1, 2, 3))

    with pool.lend(need()) as engine:
        engine.submit(requests(7))
        assert [answer.number for answer in engine.poll(1.0).answers] == [7]


def test_a_kept_model_says_what_it_saved():
    kept = EngineStart(graph="g", is_compiled=True, was_kept=True, load_s=28.0)
    first = EngineStart(graph="g", is_compiled=True, was_kept=False, load_s=132.0)

    assert "saved 104 s of 132" in said_of_kept(kept, (first,))
    assert "saved" not in said_of_kept(kept, ())
