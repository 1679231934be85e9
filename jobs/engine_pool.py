"""One engine for consecutive runs: it stays warm between them, where it serves the next as well.

A run gets an engine on loan and closes it as its own; whether that ends the process is decided
here. From the end of one use on the device is held for the next, whose bill has that time as
idle. Nothing of one run is left in the engine for the next but cached beginnings of prompts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipelines.engines import Engine
from pipelines.engines.closing import ClosedByBlock
from pipelines.engines.settings import EngineSettings
from pipelines.engines.sharing import misfit
from pipelines.tools import EngineNeed
from schemas.errors import EngineDiedError, SettingsError
from schemas.requests import EngineFacts, EngineRequest, Poll


class Opener(Protocol):
    """What starts engines on this machine."""

    def choose(self, need: EngineNeed) -> EngineSettings | None:
        """Return how an engine for this need is started; None for one without settings."""
        ...

    def open(self, need: EngineNeed, settings: EngineSettings | None) -> Engine:
        """Start it."""
        ...

    def started(
        self, need: EngineNeed, settings: EngineSettings | None, facts: EngineFacts
    ) -> None:
        """Take note of an engine that is ready."""
        ...


@dataclass(slots=True, kw_only=True)
class _Warm:
    """An engine that runs, what for, and since when nobody uses it."""

    engine: Engine
    need: EngineNeed
    settings: EngineSettings | None
    free_since_s: float


class EnginePool(ClosedByBlock):
    """Lends at most one engine at a time; `num_runs_left` says how many runs may follow.

    With none to follow an engine ends when it is given back, as without a pool.
    """

    def __init__(
        self, opener: Opener, *, on_note: Callable[[str], None] = lambda _note: None
    ) -> None:
        """Have no engine yet."""
        self._opener = opener
        self._on_note = on_note
        self._warm: _Warm | None = None
        self.num_runs_left = 0

    def is_warm(self) -> bool:
        """Return whether an engine waits that is loaded; it may still not serve the next need."""
        return self._warm is not None

    def lend(self, need: EngineNeed) -> Engine:
        """Return an engine for this need: the warm one, or a new one in its place.

        Raises:
            SettingsError, EngineDiedError: it cannot be started.
        """
        settings = self._opener.choose(need)
        warm, self._warm = self._warm, None
        if warm is not None:
            why_not = _why_not(warm, need, settings)
            if why_not is None:
                return LentEngine(self, warm, is_new=False)
            self._on_note(f"another engine is started: {why_not}")
            warm.engine.close()
        engine = self._opener.open(need, settings)
        opened = _Warm(
            engine=engine, need=need, settings=settings, free_since_s=engine.held_since_s
        )
        return LentEngine(self, opened, is_new=True)

    def started(self, warm: _Warm, facts: EngineFacts) -> None:
        """Take note of a new engine that is ready."""
        self._opener.started(warm.need, warm.settings, facts)

    def give_back(self, warm: _Warm, *, is_sound: bool) -> None:
        """Keep the engine for the next run, or end it."""
        if not is_sound or not self.num_runs_left:
            warm.engine.close()
            return
        warm.engine.reset()
        warm.free_since_s = time.monotonic()
        self._warm = warm

    def close(self) -> None:
        """End the engine that waits for a run, if one does; that wait is on no run's bill."""
        warm, self._warm = self._warm, None
        if warm is not None:
            warm.engine.close()
            idle_s = time.monotonic() - warm.free_since_s
            self._on_note(f"the engine was held {idle_s:.1f} s after its last run")


def _why_not(warm: _Warm, need: EngineNeed, settings: EngineSettings | None) -> str | None:
    """Return why the warm engine does not serve this need; None if it does."""
    if warm.need.checkpoint.weights_hash != need.checkpoint.weights_hash:
        return f"another model, {need.checkpoint.model_id}"
    if settings is not None and warm.settings is not None:
        return misfit(warm.settings, settings)
    is_longer = need.context_length > warm.need.context_length
    return "longer requests than it has room for" if is_longer else None


class LentEngine(ClosedByBlock):
    """An engine on loan; see `Engine`. After an error of its own it is not lent again."""

    def __init__(self, pool: EnginePool, warm: _Warm, *, is_new: bool) -> None:
        """Lend this one; `is_new`: its load is on this run's bill."""
        self._pool = pool
        self._warm = warm
        self._is_new = is_new
        self._is_sound = True
        self._is_back = False
        self._held_since_s = warm.free_since_s
        self._asked: set[int] = set()
        self._facts: EngineFacts | None = None

    @property
    def held_since_s(self) -> float:
        """Since the engine's start, or the end of the use before. See `Engine.held_since_s`."""
        return self._held_since_s

    @property
    def facts(self) -> EngineFacts:
        """What the engine is; a load that another run paid for is none. See `Engine.facts`."""
        if self._facts is None:
            try:
                found = self._warm.engine.facts
            except (EngineDiedError, SettingsError):
                self._is_sound = False
                raise
            if self._is_new:
                self._pool.started(self._warm, found)
            self._facts = found if self._is_new else replace(found, load_s=0.0)
        return self._facts

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Hand over requests. See `Engine.submit`."""
        try:
            self._warm.engine.submit(requests)
        except EngineDiedError:
            self._is_sound = False
            raise
        self._asked.update(one.number for one in requests)

    def poll(self, timeout_s: float) -> Poll:
        """Return answers and steps. See `Engine.poll`."""
        try:
            poll = self._warm.engine.poll(timeout_s)
        except (EngineDiedError, SettingsError):
            self._is_sound = False
            raise
        for answer in poll.answers:
            # An answer to what was not asked: nothing of that engine is trusted.
            self._is_sound = self._is_sound and answer.number in self._asked
            self._asked.discard(answer.number)
        return poll

    def reset(self) -> None:
        """Drop every request that is not answered. See `Engine.reset`."""
        self._asked.clear()
        self._warm.engine.reset()

    def close(self) -> None:
        """Give the engine back. See `Engine.close`."""
        if not self._is_back:
            self._is_back = True
            self._pool.give_back(self._warm, is_sound=self._is_sound)
