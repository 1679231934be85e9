"""How a command ends: one result on stdout, all else on stderr, and an exit code that says why.

Exit codes are those of `schemas.errors`; 130 was interrupted, 70 is a bug of promptmill.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from schemas.errors import PromptmillError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
BUG = 70
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WIDTH_OF_A_FILE = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a command has to say: `fields` with --json, else `show` on a console.

    `fault` is told after it, and gives the exit code, where the work was done and its result
    is not good (rejects above the limit, a run that does not pass its audit).
    """

    fields: Mapping[str, object]
    show: Callable[["Console"], None]
    fault: PromptmillError | None = None


def end(work: Callable[[], Ending], *, as_json: bool, is_resumable: bool = False) -> NoReturn:
    """Do a command's work, say how it ended, and leave with its exit code.

    Raises:
        typer.Exit: always.
    """
    try:
        with _stopping_cleanly(), stdout_as_stderr():
            ending = work()
    except KeyboardInterrupt:
        told = "interrupted"
        if is_resumable:
            command = shlex.join(["promptmill", *sys.argv[1:]])
            told += f"; finished batches are committed, the same command does the rest: {command}"
        fail(told, INTERRUPTED, as_json=as_json)
    except PromptmillError as error:
        fail(str(error), error.exit_code, as_json=as_json)
    except (typer.Exit, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the roof: every end has its exit code, and polars' panics are no Exception
        traceback.print_exc()
        fail(f"{type(error).__name__}: {error}", BUG, as_json=as_json)
    code = 0 if ending.fault is None else ending.fault.exit_code
    fields = dict(ending.fields)
    if ending.fault is not None:
        fields |= {"error": str(ending.fault), "exit_code": code}
    write_stdout(_json_line(fields) if as_json else _shown(ending.show))
    if ending.fault is not None:
        tell_error(str(ending.fault))
    raise typer.Exit(code)


def fail(message: str, code: int, *, as_json: bool) -> NoReturn:
    """Say an error, as one JSON object too where that was asked for, and leave with `code`."""
    tell_error(message)
    if as_json:
        write_stdout(_json_line({"error": message, "exit_code": code}))
    raise typer.Exit(code)


def tell_error(message: str) -> None:
    """Write an error to stderr; what a terminal would take for a command is taken out."""
    from rich.console import Console
    from rich.text import Text

    lines = Text.assemble(("error: ", "bold red"), printable(message))
    Console(stderr=True).print(lines, soft_wrap=True)


def printable(text: str) -> str:
    """Return the text without control characters other than line ends: a prompt may hold any."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def write_stdout(text: str) -> None:
    """Write to stdout; a reader that has gone away is no error of ours."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def stdout_as_stderr() -> Generator[None]:
    """Send to stderr what anything in the block, libraries in C too, writes to stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _stopping_cleanly() -> Generator[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt; a second one ends at once.

    The engine's process sees that its parent is gone, and ends too.
    """

    def end_now(_number: int, _frame: FrameType | None) -> NoReturn:
        os.write(2, b"\x1b[?25h\n" if os.isatty(2) else b"\n")  # shows the cursor again
        os._exit(INTERRUPTED)

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        for number in _SIGNALS:
            signal.signal(number, end_now)
        os.write(2, b"\nstopping: finished batches are being committed; once more ends at once\n")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(show: Callable[["Console"], None]) -> str:
    """Return what `show` prints, styled where stdout is a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as captured:
        show(console)
    return captured.get()


def _json_line(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, default=_plain) + "\n"


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
