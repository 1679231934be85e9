"""A Python module in a process of its own, watched: frames each way, no orphans.

Three threads serve a child: one starts it, reads its frames and notices its end; one writes
to it, so that `send` never waits; one copies what it prints (last_lines.py). They are
daemons and hold nothing that must be saved. Nothing here knows what a frame means.

The child leads its own process group, so it is killed with all that it has started. It
learns of its parent's death twice: its stdin ends, and the kernel kills it (child_side.py).
The kernel watches the thread that started the child, not the process: that is why the
reading thread, which lives as long as the child, starts it.
"""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from pipelines.engines.last_lines import LastLines
from pipelines.engines.wire import Inbox, Row, WireError, packed

ROOT = Path(__file__).resolve().parents[2]
"""Where the child finds our packages."""

_LEAVE_S = 2.0
CLOSE_S = 2 * _LEAVE_S + 1.0
"""Ending a child takes no longer: it is asked twice, then killed; a second for the rest."""
_SLICE_S = 0.25
_PIPE_BYTES = 1 << 20


class ChildProcess:
    """One child; `send` and `receive` carry msgpack values."""

    def __init__(
        self, module: str, environment: Mapping[str, str], *, log: Path | None = None
    ) -> None:
        """Start `python -m module PARENT_PID` with this environment and our packages' path.

        What it prints is appended to `log`, or goes to this process's stderr. Its temporary
        files go with it: they lie in a folder of its own.

        Raises:
            OSError: it cannot be started.
        """
        self._command = [sys.executable, "-P", "-m", module, str(os.getpid())]
        path = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        self._scratch = tempfile.mkdtemp(prefix="promptmill-child-")
        self._environment = {
            **environment,
            "PYTHONPATH": os.pathsep.join(path),
            "TMPDIR": self._scratch,
        }
        self._lines = LastLines(log)
        self._changed = threading.Condition()
        self._frames: deque[Row] = deque()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._bury_lock = threading.Lock()
        self._ended: str | None = None
        self._started_at = self._progress_at = time.monotonic()
        started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._live, args=(started,), daemon=True)
        self._reader.start()
        process = started.get()
        if isinstance(process, OSError):
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise process
        self._process = process

    @property
    def pid(self) -> int:
        """The child's process id, which is its process group's too."""
        return self._process.pid

    @property
    def ended(self) -> str | None:
        """How it ended, how long it had lived and its last lines; None while it lives."""
        return self._ended

    @property
    def progress_at(self) -> float:
        """When its last frame came in, or else when it was started, by `time.monotonic()`."""
        return self._progress_at

    def send(self, value: object) -> None:
        """Send a value; returns at once. It is lost if the child is dead."""
        self._outgoing.put(packed(value))

    def receive(self, timeout_s: float) -> list[Row]:
        """Return the frames that came in; waits up to `timeout_s` for one, or for the end.

        Every whole frame is returned before `ended` is worth a look.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._frames and self._ended is None:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._is_dead():
                    break
                self._changed.wait(min(left_s, _SLICE_S))
        if self._is_dead():
            self._reader.join(_LEAVE_S)
            self.kill()
        with self._changed:
            frames = list(self._frames)
            self._frames.clear()
        return frames

    def kill(self) -> None:
        """Kill the child and everything it started, and reap it; may be called again.

        The group is killed before the child is reaped: until then its number is taken, so
        nobody else's group can be hit.
        """
        with self._bury_lock:
            if self._ended is not None:
                return
            lived_s = time.monotonic() - self._started_at
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            code = self._process.wait()
            self._outgoing.put(None)
            self._remove_leftovers()
            tail = self._lines.tail(wait_s=1.0)
            with self._changed:
                self._ended = f"{_how(code)} after {lived_s:.1f} s{tail}"
                self._changed.notify_all()

    def close(self) -> None:
        """End the child and everything it started; may be called again.

        1. Its stdin ends, the sign to leave. 2. After two seconds it gets SIGTERM. 3. After two
        more, or once it has left, its whole group gets SIGKILL.
        """
        self._outgoing.put(None)
        if not self._has_left():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)
            self._has_left()
        self.kill()
        self._reader.join(_LEAVE_S)

    def _live(self, started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
        """Start the child and take its frames until it ends."""
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pipesize=_PIPE_BYTES,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            started.put(error)
            return
        self._process = process
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        self._lines.follow(process.stderr)
        started.put(process)
        self._read()
        self._has_left()
        self.kill()
        writer.join(_LEAVE_S)

    def _read(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            return
        with stdout, contextlib.suppress(WireError):
            inbox = Inbox(stdout.fileno())
            while not inbox.is_closed:
                frames = inbox.read(is_blocking=True)
                with self._changed:
                    self._frames += frames
                    self._progress_at = time.monotonic()
                    self._changed.notify_all()

    def _write(self) -> None:
        stdin = self._process.stdin
        if stdin is None:
            return
        with contextlib.suppress(BrokenPipeError), stdin:
            while (frame := self._outgoing.get()) is not None:
                stdin.write(frame)
                if self._outgoing.empty():
                    stdin.flush()

    def _remove_leftovers(self) -> None:
        """Remove its temporary files, and what Intel's OpenMP leaves when it is killed."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        openmp = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{self.pid}_{os.getuid()}")
        openmp.unlink(missing_ok=True)

    def _is_dead(self) -> bool:
        """Whether the child has ended; its exit status is left for `kill` to take."""
        if self._ended is not None:
            return True
        with contextlib.suppress(ChildProcessError):
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, options) is not None
        return True

    def _has_left(self) -> bool:
        deadline = time.monotonic() + _LEAVE_S
        while not self._is_dead():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
