"""Writes checkpoints in a child process: the words that go over its pipes, and its parent.

parent ── one JSON line (Request) ──> stdin     stays open: when it closes, the child ends
parent <── one JSON document (Answer) ── stdout
parent <── "progress: …", and whatever libraries say ── stderr
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import SettingsError, TryElsewhereError

CHILD: Final = "pipelines.engines.checkpoint_child"
PROGRESS: Final = "progress: "
_NUM_LAST_LINES = 15


class Request(BaseModel):
    """What to make of the weight files in the folder `source`, and the folder to write into.

    BF16 is made of one GGUF file, the others of safetensors. Both folders are absolute.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    scheme: Literal["BF16", "W8A8", "W4A16"]
    source: Path
    weight_files: tuple[str, ...]
    target: Path


class LayerError(BaseModel):
    """How far a layer's weights moved: |W - Q| / |W| (L2) over its output channels."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    layer: str
    max_relative_error: float
    mean_relative_error: float


class Answer(BaseModel):
    """What the child made, and by which libraries; `refused` says why it made nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    refused: str | None = None
    scheme: str = ""
    layers: tuple[LayerError, ...] = ()
    versions: dict[str, str] = {}


def write_checkpoint(request: Request, report: Callable[[str], None]) -> Answer:
    """Return the child's answer; the files are in `request.target`, complete but not flushed.

    `report` gets the child's progress line by line, from a second thread. The child ends with
    this process, however that ends.

    Raises:
        SettingsError: these weights cannot be made of this model.
        TryElsewhereError: the child ended without an answer: killed for memory, or a broken
            installation. What is in the target folder is worth nothing.
    """
    last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
    with subprocess.Popen(
        [sys.executable, "-m", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        cwd=Path(__file__).parents[2],  # where `-m` finds us, wherever we were started
    ) as child:
        if child.stdin is None or child.stdout is None or child.stderr is None:
            raise TryElsewhereError(f"{CHILD} was started without its pipes")
        listener = threading.Thread(target=_listen, args=(child.stderr, report, last_lines))
        listener.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it is dead already; its stderr says why
                os.write(child.stdin.fileno(), request.model_dump_json().encode() + b"\n")
            answered = child.stdout.read()
        finally:
            child.stdin.close()  # ends it: it has answered, or we are being stopped
            listener.join()
    try:
        answer = Answer.model_validate_json(answered)
    except ValidationError as error:
        said = "\n  ".join(last_lines) or "nothing"
        raise TryElsewhereError(
            f"making {request.scheme} weights of {request.source}: {CHILD} "
            f"{_end(child.returncode)} without an answer; its last lines:\n  {said}"
        ) from error
    if answer.refused is not None:
        raise SettingsError(answer.refused)
    return answer


def _listen(stderr: Iterable[str], report: Callable[[str], None], last_lines: deque[str]) -> None:
    for line in stderr:
        if line.startswith(PROGRESS):
            report(line.removeprefix(PROGRESS).rstrip())
        elif line.strip():
            last_lines.append(line.rstrip()[:500])


def _end(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    hint = " (out of memory?)" if returncode == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-returncode).name}{hint}"
