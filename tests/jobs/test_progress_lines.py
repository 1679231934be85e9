"""Progress as lines in a log."""

from jobs.progress_lines import progress_line
from jobs.resources import ProgressLog
from schemas.runs import Progress


def test_a_line_of_progress_says_where_the_run_is_how_fast_and_what_it_cost():
    progress = Progress(
        phase="generate",
        num_rows=3100,
        num_rows_total=31000,
        num_batches=12,
        num_batches_total=80,
        tokens_per_s=2350.4,
        ttft_s=0.12,
        tpot_s=0.028,
        usd=0.42,
        eta_s=360.0,
    )

    assert progress_line(progress) == (
        "batch 12/80 · 3,100 rows · TTFT 120 ms · TPOT 28 ms · 2,350 tok/s · $0.42 · 6 min left"
    )


def test_a_line_of_progress_leaves_out_what_is_not_known():
    progress = Progress(phase="generate", num_rows=0, num_rows_total=9, num_batches_total=1)

    assert progress_line(progress) == "batch 0/1 · 0 rows"


def test_progress_is_logged_every_thirty_seconds_and_at_every_change_of_phase():
    lines: list[str] = []
    times = iter([0.0, 1.0, 29.0, 31.0, 32.0])
    log = ProgressLog(lines.append, clock=lambda: next(times))

    for phase, num_rows in (
        ("load", 0),
        ("generate", 1),
        ("generate", 2),
        ("generate", 3),
        ("generate", 4),
    ):
        log(Progress(phase=phase, num_rows=num_rows, num_rows_total=9))

    assert [line.split(" · ")[-1] for line in lines] == ["0 rows", "1 rows", "3 rows"]
