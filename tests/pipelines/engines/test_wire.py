import contextlib
import os

import pytest

from pipelines.engines.wire import (
    MAX_FRAME_BYTES,
    Inbox,
    WireError,
    answer_of,
    answer_row,
    packed,
    sampling_of,
    sampling_row,
    step_of,
    step_row,
)
from schemas.requests import Answer, SamplingSettings, StepStats, StepWork


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def through(value):
    content = packed(value)
    assert int.from_bytes(content[:4], "little") == len(content) - 4
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    (frame,) = Inbox(reading).read(is_blocking=True)
    os.close(reading)
    return frame


def test_a_frame_comes_out_as_it_went_in_with_lists_as_tuples():
    assert through(["ask", {"a": None}, [1, 2**62, -1.5, b"x", "é"]]) == (
        "ask",
        {"a": None},
        (1, 2**62, -1.5, b"x", "é"),
    )


def test_frames_that_arrive_in_pieces_are_put_together(pipe):
    inbox, content = Inbox(pipe[0]), packed(("first", "x" * 300)) + packed(("second",))
    seen = []
    for start in range(0, len(content), 7):
        os.write(pipe[1], content[start : start + 7])
        seen += inbox.read(is_blocking=False)

    assert [frame[0] for frame in seen] == ["first", "second"]
    assert not inbox.is_closed


def test_reading_without_blocking_returns_at_once_when_nothing_has_come(pipe):
    assert Inbox(pipe[0]).read(is_blocking=False) == []


def test_half_a_frame_before_the_end_is_dropped(pipe):
    os.write(pipe[1], packed(("whole",)) + packed(("half", "y" * 100))[:-1])
    os.close(pipe[1])
    inbox = Inbox(pipe[0])

    assert inbox.read(is_blocking=True) == [("whole",)]
    assert inbox.read(is_blocking=True) == []
    assert inbox.is_closed


@pytest.mark.parametrize(
    "content",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x01\x00\x00\x00\x07",
        b"\x03\x00\x00\x00\x91\x01\x02",
    ],
    ids=["too long", "no msgpack", "no list", "rest"],
)
def test_bytes_that_are_no_frames_are_refused(pipe, content):
    os.write(pipe[1], content)

    with pytest.raises(WireError):
        Inbox(pipe[0]).read(is_blocking=True)


def test_an_answer_survives_the_way():
    answer = Answer(
        number=7,
        token_ids=(1, 2),
        finish_reason="length",
        stop_reason=None,
        num_cached_tokens=32,
        logprobs=(-0.5, float("-inf")),
        queue_s=0.25,
        ttft_s=0.5,
        tpot_s=None,
    )

    assert answer_of(through(answer_row(answer))) == answer


def test_sampling_settings_survive_the_way():
    sampling = SamplingSettings(
        max_tokens=5, seed=2**63 - 1, stop=("a", "b"), allowed_token_ids=(3, 4), json_schema="{}"
    )

    assert sampling_of(through(sampling_row(sampling))) == sampling


def test_a_step_survives_the_way_with_the_work_of_every_group():
    work = [
        StepWork(
            group=group,
            num_prefill_tokens=10,
            num_decode_tokens=2,
            num_context_tokens=99,
            num_forward_tokens=11,
            num_query_key_pairs=66,
        )
        for group in (4, 5)
    ]
    step = StepStats(
        started_s=1.5,
        duration_s=0.25,
        num_running=2,
        num_waiting=1,
        kv_usage_fraction=0.5,
        num_preemptions=0,
        work=tuple(work),
    )

    assert step_of(through(step_row(step))) == step


def test_an_integer_beyond_64_bits_cannot_be_sent():
    with pytest.raises(OverflowError):
        packed((2**64,))
