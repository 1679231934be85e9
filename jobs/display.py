"""How a run goes, on stderr: a live line on a terminal, else one plain line about every 10 s."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars

from jobs.commands.texts import count, rate, seconds, size, usd
from schemas.runs import Progress

INTERVAL_S = 10.0
_PHASES = {
    "plan": "planning",
    "load": "starting the engine",
    "generate": "generating",
    "seal": "sealing",
}


class Display(Protocol):
    """Shows progress while its block lasts."""

    def show(self, progress: Progress) -> None:
        """Take how the run goes now."""
        ...

    def note(self, text: str) -> None:
        """Write a line that stays."""
        ...

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and leave the terminal as it was."""
        ...


def display() -> Display:
    """Return what fits stderr."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveLine(console)
    return PlainLines(lambda line: console.print(line, soft_wrap=True))


def pieces(progress: Progress) -> list[str]:
    """Return what is known of how a run goes: batches, speed, latencies, memory, cost, time left.

    Rows are left to the caller: a bar shows them by itself.
    """
    known: list[str] = []
    if progress.num_batches_total:
        known.append(f"{count(progress.num_batches)}/{count(progress.num_batches_total)} batches")
    if progress.phase != "generate":
        return known
    for name, value, text in (
        ("", progress.tokens_per_s, rate),
        ("TTFT ", progress.ttft_s, seconds),
        ("TPOT ", progress.tpot_s, seconds),
    ):
        if value is not None:
            known.append(f"{name}{text(value)}")
    if progress.memory_bytes is not None:
        known.append(f"{size(progress.memory_bytes)} memory")
    if progress.usd > 0:
        known.append(usd(progress.usd))
    if progress.eta_s is not None:
        known.append(f"{seconds(progress.eta_s)} left")
    return known


def line(progress: Progress) -> str:
    """Return how a run goes as one line, such as `generating · 120/400 rows (30 %) · …`."""
    rows = f"{count(progress.num_rows)} rows"
    if progress.num_rows_total:
        share = 100 * progress.num_rows // progress.num_rows_total
        rows = f"{count(progress.num_rows)}/{count(progress.num_rows_total)} rows ({share} %)"
    return " · ".join([_PHASES[progress.phase], rows, *pieces(progress)])


class LiveLine:
    """A spinner, a bar over rows, and the pieces of the line beside it."""

    def __init__(self, console: Console) -> None:
        """Show on `console`, a terminal."""
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bars.add_task("starting", total=None, told="")

    def show(self, progress: Progress) -> None:
        """See `Display`."""
        rows = f"{count(progress.num_rows)} rows"
        self._bars.update(
            self._task,
            description=_PHASES[progress.phase],
            completed=progress.num_rows,
            total=progress.num_rows_total,
            told=" · ".join([rows, *pieces(progress)]),
        )

    def note(self, text: str) -> None:
        """See `Display`."""
        self._bars.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def __enter__(self) -> Self:
        """See `Display`."""
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `Display`."""
        self._bars.stop()


class PlainLines:
    """A line when the phase changes, and one every `interval_s` seconds, also in a long load."""

    def __init__(self, write: Callable[[str], None], *, interval_s: float = INTERVAL_S) -> None:
        """Give lines to `write`, sometimes from another thread."""
        self._write = write
        self._interval_s = interval_s
        self._last: Progress | None = None
        self._started_s = time.monotonic()
        self._is_over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def show(self, progress: Progress) -> None:
        """See `Display`."""
        is_new = self._last is None or self._last.phase != progress.phase
        self._last = progress
        if is_new:
            self._tell()

    def note(self, text: str) -> None:
        """See `Display`."""
        self._write(text)

    def __enter__(self) -> Self:
        """See `Display`."""
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `Display`."""
        self._is_over.set()
        self._ticker.join()

    def _tick(self) -> None:
        while not self._is_over.wait(self._interval_s):
            self._tell()

    def _tell(self) -> None:
        told = "starting" if self._last is None else line(self._last)
        self._write(f"{told} · {seconds(time.monotonic() - self._started_s)} so far")
