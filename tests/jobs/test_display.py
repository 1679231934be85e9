import io
import re
import threading

import pytest
from rich.console import Console

from jobs.commands.planning import bars
from jobs.commands.texts import codes, seconds, size, usd
from jobs.display import LiveLine, PlainLines, line
from pipelines.outline import Bar
from schemas.runs import Progress

GENERATING = Progress(
    phase="generate",
    num_rows=1200,
    num_rows_total=4000,
    num_batches=3,
    num_batches_total=10,
    tokens_per_s=2437.4,
    ttft_s=1.25,
    tpot_s=0.014,
    memory_bytes=3 * 2**29,
    usd=0.0123,
    eta_s=200.0,
)


def test_a_line_says_rows_batches_speed_latencies_memory_cost_and_time_left():
    assert line(GENERATING) == (
        "generating · 1,200/4,000 rows · 3/10 batches · 2,437 tok/s · TTFT 1.2 s · "
        "TPOT 14 ms · 1.5 GiB memory · $0.0123 · 3 min 20 s left"
    )


def test_a_line_leaves_out_what_is_not_known():
    assert line(Progress(phase="plan", num_rows=7, num_rows_total=None)) == "planning · 7 rows"


def test_planning_says_how_many_rows_there_are_how_fast_it_reads_them_and_how_long_yet():
    planning = Progress(
        phase="plan", num_rows=1200, num_rows_total=4000, rows_per_s=11800.0, eta_s=200.0
    )

    assert line(planning) == "planning · 1,200/4,000 rows · 11,800 rows/s · 3 min 20 s left"


def test_without_a_terminal_a_change_of_phase_is_told_at_once_and_the_rest_waits():
    lines: list[str] = []
    shown = PlainLines(lines.append, interval_s=600)

    with shown:
        for phase in ("plan", "plan", "load", "generate", "generate"):
            shown.show(Progress(phase=phase, num_rows=1, num_rows_total=2))
        shown.note("a note")

    assert [text.split(" · ")[0] for text in lines] == [
        *("planning", "starting the engine", "generating", "a note")
    ]


def test_without_a_terminal_a_line_comes_at_every_interval_also_while_nothing_moves():
    has_two = threading.Event()
    lines: list[str] = []

    def write(text: str) -> None:
        lines.append(text)
        if len(lines) == 2:
            has_two.set()

    with PlainLines(write, interval_s=0.001):
        assert has_two.wait(60)

    assert all(text.startswith("starting · ") for text in lines)


def test_a_terminal_of_80_columns_shows_all_of_it_with_a_bar():
    file = io.StringIO()
    with LiveLine(Console(file=file, force_terminal=True, width=80)) as shown:
        shown.show(GENERATING)
        shown.note("a note [not markup]")

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert " 30% 1,200/4,000 rows · 3/10 batches " in text
    assert "  2,437 tok/s · TTFT 1.2 s · TPOT 14 ms · 1.5 GiB memory · $0.0123 · 3 min" in text
    assert "━" in text
    assert "a note [not markup]" in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0.0 s"), (0.25, "250 ms"), (59.94, "59.9 s"), (200, "3 min 20 s"),
     (7500, "2 h 5 min")],
)  # fmt: skip
def test_durations_have_the_unit_that_people_use(number, text):
    assert seconds(number) == text


def test_prices_and_sizes_have_the_digits_that_matter():
    assert [usd(one) for one in (None, 0, 0.0042, 12.345)] == ["-", "$0.00", "$0.0042", "$12.35"]
    assert [size(one) for one in (12, 2048, 5 * 2**20)] == ["12 B", "2.0 KiB", "5.0 MiB"]
    assert codes({"NULL_ID": 1, "NULL_PROMPT": 1200}) == "NULL_PROMPT 1,200, NULL_ID 1"


def test_the_largest_bar_is_the_longest_and_one_request_is_still_seen():
    drawn = bars(
        [
            Bar(min_tokens=1, max_tokens=16, num_requests=100_000),
            Bar(min_tokens=17, max_tokens=32, num_requests=0),
            Bar(min_tokens=33, max_tokens=64, num_requests=1),
        ]
    )

    assert [text.split()[-1] for text in drawn] == ["█" * 40, "0", "▏"]
