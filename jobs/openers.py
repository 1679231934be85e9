"""How engines are started on this machine: vLLM with what is best here, or the one that echoes."""

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median

from jobs.engine_choice import engine_device, engine_key, settings_for
from pipelines import devices
from pipelines.engine_records import add_start, read_record
from pipelines.engines import EchoEngine, Engine, VllmEngine, open_vllm
from pipelines.engines.settings import EngineSettings
from pipelines.engines.vllm_engine import START_TIMEOUT_S
from pipelines.tools import EngineNeed
from schemas.engine_records import EngineStart
from schemas.requests import EngineFacts


class EchoOpener:
    """Opens engines without a model."""

    def choose(self, need: EngineNeed) -> None:
        """See `Opener.choose`."""
        del need

    def open(self, need: EngineNeed, settings: EngineSettings | None) -> Engine:
        """See `Opener.open`."""
        del settings
        return EchoEngine(max_model_len=need.context_length)

    def started(
        self, need: EngineNeed, settings: EngineSettings | None, facts: EngineFacts
    ) -> None:
        """See `Opener.started`."""
        del need, settings, facts


class VllmOpener:
    """Opens vLLM; remembers in the cache folder how its starts went."""

    def __init__(self, cache_dir: Path, log: Path | None, on_note: Callable[[str], None]) -> None:
        """Append what engines print to `log`; None: this process's stderr."""
        self._cache_dir = cache_dir
        self._log = log
        self._on_note = on_note

    def choose(self, need: EngineNeed) -> EngineSettings:
        """See `Opener.choose`."""
        return settings_for(need, engine_device(devices.describe()), self._cache_dir)

    def open(self, need: EngineNeed, settings: EngineSettings | None) -> VllmEngine:
        """See `Opener.open`."""
        chosen = settings or self.choose(need)
        within_s = START_TIMEOUT_S if need.ready_within_s is None else need.ready_within_s
        return open_vllm(
            need.checkpoint,
            chosen,
            environment=os.environ,
            log=self._log,
            start_timeout_s=min(START_TIMEOUT_S, within_s),
        )

    def started(
        self, need: EngineNeed, settings: EngineSettings | None, facts: EngineFacts
    ) -> None:
        """See `Opener.started`."""
        if settings is None:
            return
        key = engine_key(need.checkpoint, settings.device)
        start = EngineStart(
            graph=settings.graph,
            is_compiled=settings.compile.value,
            was_kept=facts.settings.get("compiled") == "before",
            load_s=facts.load_s,
        )
        if start.was_kept:
            told = said_of_kept(start, read_record(self._cache_dir, key).starts)
            self._on_note(told)
        add_start(self._cache_dir, key, start)


def said_of_kept(start: EngineStart, earlier: tuple[EngineStart, ...]) -> str:
    """Return what it saved to keep what an earlier start compiled."""
    told = f"the engine was ready in {start.load_s:.0f} s with a model compiled before"
    compiling = [one.load_s for one in earlier if one.is_compiled and not one.was_kept]
    if not compiling:
        return told
    saved_s = median(compiling) - start.load_s
    return f"{told}, which saved {saved_s:.0f} s of {median(compiling):.0f}"
