"""Progress as one line of text, for logs."""

from collections.abc import Iterator

from schemas.runs import Progress

_SEPARATOR = " · "


def progress_line(progress: Progress) -> str:
    """Return how a run goes in one line; what is not known yet is left out.

    Such as: batch 12/80 · 3,100 rows · TTFT 120 ms · TPOT 28 ms · 2,350 tok/s · $0.42 · 6 min left
    """
    match progress.phase:
        case "plan":
            pieces = ["planning", *_rows(progress), *_planning_speed(progress)]
        case "load":
            pieces = ["starting the engine", *_batches(progress), *_rows(progress)]
            pieces += _left(progress)
        case "generate":
            pieces = [*_batches(progress), *_rows(progress), *_speed(progress)]
        case "seal":
            pieces = ["sealing", *_batches(progress), *_rows(progress)]
    return _SEPARATOR.join(pieces)


def _batches(progress: Progress) -> Iterator[str]:
    yield f"batch {progress.num_batches}/{progress.num_batches_total}"


def _rows(progress: Progress) -> Iterator[str]:
    yield f"{progress.num_rows:,} rows"


def _planning_speed(progress: Progress) -> Iterator[str]:
    if progress.rows_per_s is not None:
        yield f"{progress.rows_per_s:,.0f} rows/s"
    yield from _left(progress)


def _speed(progress: Progress) -> Iterator[str]:
    if progress.ttft_s is not None:
        yield f"TTFT {_short_time(progress.ttft_s)}"
    if progress.tpot_s is not None:
        yield f"TPOT {_short_time(progress.tpot_s)}"
    if progress.tokens_per_s is not None:
        yield f"{progress.tokens_per_s:,.0f} tok/s"
    if progress.usd > 0:
        yield f"${progress.usd:.2f}" if progress.usd >= 0.1 else f"${progress.usd:.4f}"
    yield from _left(progress)


def _left(progress: Progress) -> Iterator[str]:
    if progress.eta_s is not None:
        yield f"{_long_time(progress.eta_s)} left"


def _short_time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _long_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
