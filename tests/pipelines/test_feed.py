import pytest

from pipelines.asking import AskForLabel
from pipelines.feed import Feed
from pipelines.labels import LabelTree
from pipelines.plan_parts import BatchRows
from pipelines.prediction import fixed_lengths
from pipelines.tables import table_of
from pipelines.window import Window
from schemas.errors import EngineDiedError
from schemas.plans import PLAN_ROWS, PlannedBatch, PlanRow
from schemas.prompts import Fault
from schemas.requests import Answer, SamplingSettings

KNOWN = fixed_lengths("a test")


class AskOnce:
    """Asks each prompt as it is."""

    num_answer_tokens = None
    question_tokens = ()
    num_asks = 1
    first_asks = (0,)

    def asks(self, prompts, sampling):
        return [(prompts[0], sampling)]


def row(number: int, num_tokens: int = 5) -> PlanRow:
    return PlanRow(
        row_key=f"r{number}",
        file_number=0,
        row=number,
        request_digest=number.to_bytes(32, "big"),
        prompt_token_ids=(number,) * num_tokens,
        question_token_ids=None,
        num_prompt_tokens=num_tokens,
        predicted_output_tokens=1,
        max_output_tokens=1,
        num_truncated_tokens=0,
        prefix_group=0,
        max_tokens=None,
        temperature=None,
        seed=None,
        reject_code=None,
        reject_stage=None,
        reject_message=None,
    )


def cut(number: int, rows: list[PlanRow], num_requests: int | None = None) -> BatchRows:
    batch = PlannedBatch(
        batch_id=f"b{number}",
        part=0,
        row_group=number,
        num_rows=len(rows),
        num_requests=len(rows) if num_requests is None else num_requests,
        num_shared=0,
        num_rejects=0,
        num_prompt_tokens=0,
        predicted_output_tokens=0,
        max_output_tokens=0,
    )
    return BatchRows(batch=batch, rows=table_of(rows, PLAN_ROWS))


def feed_of(*sizes: int, num_tokens: int = 5) -> Feed:
    numbers = iter(range(1000))
    batches = [
        cut(i, [row(next(numbers), num_tokens) for _ in range(n)]) for i, n in enumerate(sizes)
    ]
    return Feed(iter(batches), AskOnce(), SamplingSettings(max_tokens=1), KNOWN)


def wide(num_requests: int = 100) -> Window:
    return Window(num_requests=num_requests, num_tokens=None)


def answer(request) -> Answer:
    return Answer(number=request.number, token_ids=(1,), finish_reason="stop")


def test_requests_of_the_next_batch_follow_before_the_last_batch_is_answered():
    feed = feed_of(2, 2, 2)

    assert [request.group for request in feed.next_requests(wide(5))] == [0, 0, 1, 1, 2]


def test_no_more_requests_enter_than_the_window_holds():
    feed = feed_of(10)
    first = feed.next_requests(wide(4))
    feed.answered(answer(first[2]))

    assert (len(first), len(feed.next_requests(wide(4)))) == (4, 1)


def test_the_window_holds_tokens_too_but_never_less_than_one_request():
    feed = feed_of(10, num_tokens=50)
    window = Window(num_requests=100, num_tokens=110)
    small = Window(num_requests=100, num_tokens=10)

    assert len(feed.next_requests(window)) == 2
    assert len(feed_of(10, num_tokens=50).next_requests(small)) == 1


def test_a_batch_is_complete_with_its_last_answer_whatever_the_order():
    feed = feed_of(2, 1)
    a, b, c = feed.next_requests(wide())

    assert feed.answered(answer(c)).cut.batch.batch_id == "b1"
    assert feed.answered(answer(b)) is None
    assert feed.answered(answer(a)).cut.batch.batch_id == "b0"
    assert feed.next_requests(wide()) == []
    assert feed.is_done


def test_a_batch_without_requests_needs_no_engine():
    feed = Feed(
        iter([cut(0, [row(1)], num_requests=0)]), AskOnce(), SamplingSettings(max_tokens=1), KNOWN
    )

    assert not feed.has_requests()
    assert [batch.cut.batch.batch_id for batch in feed.without_requests] == ["b0"]
    assert feed.is_done


@pytest.mark.parametrize("number", [0, 999])
def test_an_answer_to_what_is_not_in_the_engine_condemns_the_engine(number):
    feed = feed_of(1)
    (request,) = feed.next_requests(wide())
    feed.answered(answer(request))

    with pytest.raises(EngineDiedError, match="not in it"):
        feed.answered(Answer(number=number, token_ids=(), finish_reason="stop"))


def test_what_the_engine_refuses_is_a_fault_of_that_request_alone():
    feed = feed_of(2)
    a, b = feed.next_requests(wide())
    refusal = Answer(number=a.number, token_ids=(), finish_reason="stop", error="top_p is odd")
    feed.answered(refusal)

    found = feed.answered(answer(b)).found()
    assert found[0] == Fault("BAD_SAMPLING", "top_p is odd")
    assert found[1] == (answer(b),)


def run_with_killers(feed: Feed, killers: set[int], *, is_stall: bool = False):
    """Answer what enters; an engine dies at a killer, after it answered what stood before."""
    deaths, batches = 0, []
    while not feed.is_done:
        entered = feed.next_requests(wide(64))
        for request in entered:
            if request.prompt_token_ids[0] in killers:
                deaths += 1
                batches.append(feed.engine_died(is_stall=is_stall))
                break
            batches.append(feed.answered(answer(request)))
        assert deaths < 200
    return deaths, [batch for batch in batches if batch is not None]


@pytest.mark.parametrize("killers", [{0}, {63}, {17}, {5, 6, 40}, set(range(0, 200, 20))])
def test_the_request_that_kills_engines_is_found_and_no_other_is_condemned(killers):
    deaths, batches = run_with_killers(feed_of(*[16] * 12), killers)

    faults = {
        batch.group * 16 + i: found
        for batch in batches
        for i, found in enumerate(batch.found())
        if isinstance(found, Fault)
    }
    condemned = {number for number in killers if number < 192}
    assert set(faults) == condemned
    assert {fault.code for fault in faults.values()} == {"ENGINE_CRASH"}
    assert deaths <= 20 * len(killers)


def test_a_request_is_condemned_only_on_its_second_death():
    deaths, _ = run_with_killers(feed_of(2), {1})

    assert deaths == 2


def test_no_request_is_condemned_by_engines_that_answer_nothing():
    feed = feed_of(8)

    for _ in range(50):
        assert feed.next_requests(wide(64))
        assert feed.engine_died(is_stall=False) is None


def test_no_request_is_condemned_by_engines_that_die_at_their_third_request():
    feed, batches = feed_of(40), []
    while not feed.is_done:
        for number, request in enumerate(feed.next_requests(wide(64))):
            if number == 2:
                batches.append(feed.engine_died(is_stall=False))
                break
            batches.append(feed.answered(answer(request)))

    (batch,) = [batch for batch in batches if batch is not None]
    assert not [found for found in batch.found() if isinstance(found, Fault)]


def test_a_request_that_stalls_engines_times_out():
    _, (batch,) = run_with_killers(feed_of(4), {2}, is_stall=True)

    assert [f.code for f in batch.found() if isinstance(f, Fault)] == ["TIMEOUT"]
    assert max(batch.tries) == batch.tries[2]


def test_every_ask_of_a_label_is_part_of_its_row():
    tree = LabelTree(("bug", "bug report", "x"), [(5,), (5, 6), (7,)], 0)
    batches = iter([cut(0, [row(1), row(2)])])
    feed = Feed(batches, AskForLabel(tree), SamplingSettings(max_tokens=1), KNOWN)

    requests = feed.next_requests(wide())
    assert [request.prompt_token_ids[5:] for request in requests] == [(), (5,), (), (5,)]
    finished = [feed.answered(answer(request)) for request in requests]
    assert [batch is not None for batch in finished] == [False, False, False, True]
    assert [len(found) for found in finished[-1].found()] == [2, 2]
