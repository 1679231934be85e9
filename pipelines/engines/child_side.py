"""What a child does before anything else: take its pipes, and tie its life to its parent's."""

import ctypes
import os
import signal
from dataclasses import dataclass
from typing import Never

from pipelines.engines.wire import Inbox, packed

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Pipes:
    """The way from the parent and the way to it."""

    inbox: Inbox
    _answers: int

    def send(self, value: object) -> None:
        """Send one value; waits while the pipe is full.

        Raises:
            BrokenPipeError: the parent is gone.
        """
        frame = memoryview(packed(value))
        while frame:
            frame = frame[os.write(self._answers, frame) :]


def take_pipes(parent_pid: int) -> Pipes:
    """Return the pipes that were stdin and stdout; from here on stdout is stderr.

    Libraries print what they like: on the answers' pipe it would be taken for frames. The
    pipes are not inherited by what this process starts, so they end when it ends.

    The kernel kills this process when the thread that started it is gone. If the parent died
    before that was asked for, this process has another parent by now, and ends.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        leave(1)
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Pipes(Inbox(requests), answers)


def leave(code: int) -> Never:
    """End this process now: no handlers, no waiting for threads. The kernel frees the rest."""
    os._exit(code)
