"""What a child prints: copied to a log line by line, and the last lines kept for its obituary."""

import contextlib
import os
import re
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO

_NUM_KEPT = 40
_NUM_TOLD = 8
_MAX_CHARACTERS = 300
_NUMBERS = re.compile(r"[\[(]\s*-?\d+(?:\s*,\s*-?\d+){3,}[^\])]*[\])]?")


class LastLines:
    """The lines of one child."""

    def __init__(self, log: Path | None) -> None:
        """Copy to this file (appended to), or to this process's stderr; never to its stdout."""
        self._log = log
        self._lines: deque[str] = deque(maxlen=_NUM_KEPT)
        self._thread: threading.Thread | None = None

    def follow(self, source: IO[bytes] | None) -> None:
        """Read `source` to its end, in a thread of its own, and close it."""
        if source is not None:
            self._thread = threading.Thread(target=self._copy, args=(source,), daemon=True)
            self._thread.start()

    def tail(self, *, wait_s: float) -> str:
        """Return the last lines, scrubbed, each after a line break; waits for the end of them."""
        if self._thread is not None:
            self._thread.join(wait_s)
        told = [line for line in list(self._lines) if line][-_NUM_TOLD:]
        return "".join(f"\n  | {line}" for line in told)

    def _copy(self, source: IO[bytes]) -> None:
        # The descriptor and not sys.stderr: Dagster and pytest put other files in its place.
        if self._log is None:
            target = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        else:
            target = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with source:
            for line in source:
                told = scrubbed(line.decode("utf-8", "replace"))
                self._lines.append(told[:_MAX_CHARACTERS])
                # A log that cannot be written must not stop the child, which would wait for
                # its own full pipe.
                with contextlib.suppress(OSError):
                    os.write(target, f"{told}\n".encode())
        if self._log is not None:
            os.close(target)


def scrubbed(line: str) -> str:
    """Return one line of a log without lists of numbers: they may be a prompt or an answer."""
    return _NUMBERS.sub("[numbers]", line.rstrip())
