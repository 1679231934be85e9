"""How a run goes, on stderr: a live line on a terminal, else one plain line about every 10 s."""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

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
    """Shows progress while its block lasts. Where it `is_live`, others' lines would tear it."""

    is_live: bool

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


def amounts(progress: Progress) -> list[str]:
    """Return rows and batches, of how many where that is known."""
    found: list[str] = []
    for name, done, total in (
        ("rows", progress.num_rows, progress.num_rows_total),
        ("batches", progress.num_batches, progress.num_batches_total),
    ):
        if total:
            found.append(f"{count(done)}/{count(total)} {name}")
        elif name == "rows":
            found.append(f"{count(done)} {name}")
    return found


def speeds(progress: Progress) -> list[str]:
    """Return what is known of tokens/s, latencies, memory, cost so far and time left."""
    left = [] if progress.eta_s is None else [f"{seconds(progress.eta_s)} left"]
    if progress.phase == "plan" and progress.rows_per_s is not None:
        return [f"{progress.rows_per_s:,.0f} rows/s", *left]
    if progress.phase != "generate":
        return left
    known: list[str] = []
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
    return known + left


def line(progress: Progress) -> str:
    """Return how a run goes as one line, such as `generating · 120/400 rows · …`."""
    return " · ".join([_PHASES[progress.phase], *amounts(progress), *speeds(progress)])


class _BarAndLine(Bars):
    """A bar, and a line of text below it that a narrow terminal cuts at its end."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar and the line of each task."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(f"  {task.fields['below']}", no_wrap=True, overflow="ellipsis")


class LiveLine:
    """A spinner and a bar over rows; below it speed, latencies, memory, cost and time left."""

    is_live = True

    def __init__(self, console: Console) -> None:
        """Show on `console`, a terminal."""
        self._bars = _BarAndLine(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TextColumn("{task.fields[beside]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bars.add_task("starting", total=None, beside="", below="")

    def show(self, progress: Progress) -> None:
        """See `Display`."""
        self._bars.update(
            self._task,
            description=_PHASES[progress.phase],
            completed=progress.num_rows,
            total=progress.num_rows_total,
            beside=" · ".join(amounts(progress)),
            below=" · ".join(speeds(progress)),
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

    is_live = False

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
