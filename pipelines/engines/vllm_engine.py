"""The parent's side of vLLM: starts the engine's process, feeds it, and watches over it."""

import logging
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines.engines.child_process import CLOSE_S, ChildProcess
from pipelines.engines.closing import ClosedByBlock
from pipelines.engines.environment import child_environment, find_preloads
from pipelines.engines.settings import EngineSettings, engine_arguments
from pipelines.engines.wire import answer_of, sampling_row, step_of
from schemas.checkpoints import Checkpoint
from schemas.errors import EngineDiedError, SettingsError
from schemas.model_shape import Roofline
from schemas.requests import Answer, EngineFacts, EngineRequest, Poll, SamplingSettings, StepStats

_LOG = logging.getLogger(__name__)

MODULE = "pipelines.engines.vllm_child"

START_TIMEOUT_S = 600.0
STALL_TIMEOUT_S = 120.0

_MAX_SAMPLING_SETTINGS = 4096
"""Jobs with a seed per row have one per row; beyond this both sides forget and begin again."""


def open_vllm(
    checkpoint: Checkpoint,
    settings: EngineSettings,
    *,
    environment: Mapping[str, str],
    log: Path | None = None,
    roofline: Roofline | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
    stall_timeout_s: float = STALL_TIMEOUT_S,
) -> "VllmEngine":
    """Start vLLM on this checkpoint and return at once; it loads while the caller goes on.

    `environment` is what the caller's own is; the child gets it with what vLLM needs put in
    and what it must not see taken out. What the child prints is appended to `log`, or goes to
    this process's stderr. `roofline` is told on in the engine's facts.

    Raises:
        SettingsError: vLLM is not installed, or the folder cannot be loaded safely.
        EngineDiedError: the process cannot be started.
    """
    if find_spec("vllm") is None:
        extra = "gpu" if settings.device.kind == "cuda" else "cpu"
        raise SettingsError(f"vLLM is not installed: pip install 'promptmill[{extra}]'")
    check_folder(Path(checkpoint.path))
    preloads, missing = find_preloads() if settings.device.kind == "cpu" else ((), ())
    for line in missing:
        _LOG.warning(line)
    try:
        child = ChildProcess(MODULE, child_environment(environment, settings, preloads), log=log)
    except OSError as error:
        raise EngineDiedError(f"the engine's process cannot be started: {error}") from error
    child.send(("start", engine_arguments(checkpoint, settings)))
    return VllmEngine(
        child,
        settings,
        roofline=roofline,
        start_timeout_s=start_timeout_s,
        stall_timeout_s=stall_timeout_s,
    )


def check_folder(folder: Path) -> None:
    """Return if vLLM can load this folder without running code that lies in it.

    Raises:
        SettingsError: there is no config.json or no safetensors file, or a config names code.
    """
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise SettingsError(f"{folder}: a model folder has config.json and *.safetensors")
    for config in folder.glob("*.json"):
        if config.stat().st_size < 1 << 20 and '"auto_map"' in config.read_text("utf-8", "replace"):
            raise SettingsError(
                f"{config}: `auto_map` names code to run with the model; promptmill runs none"
            )


class VllmEngine(ClosedByBlock):
    """vLLM in a child process; see `Engine` for what it promises."""

    def __init__(
        self,
        child: ChildProcess,
        settings: EngineSettings,
        *,
        start_timeout_s: float,
        stall_timeout_s: float,
        roofline: Roofline | None = None,
    ) -> None:
        """Watch over `child`, which has been told what to load."""
        self._child = child
        self._settings = settings
        self._roofline = roofline
        self._start_timeout_s = start_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._opened_at = time.monotonic()
        self._facts: EngineFacts | None = None
        self._failure: SettingsError | EngineDiedError | None = None
        self._epoch = 0
        self._keys: dict[SamplingSettings, int] = {}
        self._next_key = 0
        self._waiting: set[int] = set()
        self._waiting_since = 0.0

    @property
    def facts(self) -> EngineFacts:
        """What the engine is; waits until it is ready. See `Engine.facts`."""
        while self._facts is None:
            self._exchange(1.0, [], [])
        return self._facts

    @property
    def held_since_s(self) -> float:
        """When the engine's process was started. See `Engine.held_since_s`."""
        return self._opened_at

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Hand over requests. See `Engine.submit`."""
        if self._failure is None and self._child.ended is not None:
            self._fail(self._child.ended)
        if self._failure is not None:
            raise self._failure
        if len(self._keys) + len(requests) > _MAX_SAMPLING_SETTINGS:
            self._keys.clear()
            self._child.send(("forget",))
        new: list[tuple[int, Any]] = []
        rows = [
            (one.number, one.group, self._key(one, new), one.prompt_token_ids) for one in requests
        ]
        self._child.send(("ask", new, rows))
        if not self._waiting:
            self._waiting_since = time.monotonic()
        self._waiting.update(one.number for one in requests)

    def poll(self, timeout_s: float) -> Poll:
        """Return answers and steps since the last poll. See `Engine.poll`."""
        deadline = time.monotonic() + timeout_s
        answers: list[Answer] = []
        steps: list[StepStats] = []
        while True:
            left_s = deadline - time.monotonic()
            self._exchange(max(0.0, left_s), answers, steps)
            if answers or steps or left_s <= 0:
                return Poll(answers=tuple(answers), steps=tuple(steps))

    def reset(self) -> None:
        """Drop every request that is not answered. See `Engine.reset`."""
        self._epoch += 1
        self._child.send(("reset", self._epoch))
        self._waiting.clear()

    def limit(self, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        """Let steps hold no more than this, and forget cached prompts; while nothing is asked."""
        self._child.send(("limit", max_num_seqs, max_num_batched_tokens))

    def close(self) -> None:
        """End the engine's process. See `Engine.close`."""
        self._child.close()
        if self._failure is None:
            self._failure = EngineDiedError("the engine is closed")

    def _key(self, request: EngineRequest, new: list[tuple[int, Any]]) -> int:
        """Return the number that stands for the request's sampling settings on the wire."""
        key = self._keys.get(request.sampling)
        if key is None:
            key = self._keys[request.sampling] = self._next_key
            self._next_key += 1
            new.append((key, sampling_row(request.sampling)))
        return key

    def _exchange(self, timeout_s: float, answers: list[Answer], steps: list[StepStats]) -> None:
        """Take the frames that came, wait for one up to `timeout_s`; look for death."""
        if self._failure is not None:
            raise self._failure
        frames = self._child.receive(min(timeout_s, self._patience_s()))
        for kind, *content in frames:
            if kind == "did":
                epoch, answered, stepped = content
                if epoch == self._epoch:
                    steps += map(step_of, stepped)
                    answers += map(answer_of, answered)
            elif kind == "ready":
                self._facts = self._facts_of(content[0])
            else:
                self._refuse(content[0])
        self._waiting.difference_update(one.number for one in answers)
        if not frames:
            self._check_life()

    def _patience_s(self) -> float:
        """Return how long the engine may still be silent, in seconds."""
        now = time.monotonic()
        if self._facts is None:
            return max(0.0, self._opened_at + self._start_timeout_s - now)
        if not self._waiting:
            return self._stall_timeout_s
        since = max(self._child.progress_at, self._waiting_since)
        return max(0.0, since + self._stall_timeout_s - now)

    def _check_life(self) -> None:
        if self._child.ended is not None:
            self._fail(self._child.ended)
        elif self._patience_s() <= 0.0:
            limit_s = self._start_timeout_s if self._facts is None else self._stall_timeout_s
            what = (
                "was not ready"
                if self._facts is None
                else f"made no progress with {len(self._waiting)} request(s) waiting"
            )
            self._child.kill()
            self._fail(f"it {what} within {limit_s:g} s and was killed", is_stall=True)

    def _refuse(self, why: str) -> None:
        self._child.close()
        self._failure = SettingsError(
            f"vLLM does not start with these settings: {' '.join(why.split())[:700]}"
        )
        raise self._failure

    def _fail(self, how: str, *, is_stall: bool = False) -> None:
        phase = "while it was loading" if self._facts is None else "while it answered"
        self._failure = EngineDiedError(f"the engine died {phase}: {how}", is_stall=is_stall)
        raise self._failure

    def _facts_of(self, ready: dict[str, Any]) -> EngineFacts:
        """Return the facts; both processes read the same monotonic clock (Linux)."""
        others = {name: ready[name] for name in ready if name not in ("ready_at", "settings")}
        return EngineFacts(
            engine="vllm",
            device_name=self._settings.device.name,
            num_devices=self._settings.device.num_devices,
            is_gpu=self._settings.device.kind == "cuda",
            roofline=self._roofline,
            load_s=ready["ready_at"] - self._opened_at,
            close_s=CLOSE_S,
            settings={**self._settings.as_text(), **ready["settings"]},
            **others,
        )
