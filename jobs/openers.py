"""How engines are started on this machine: vLLM with what is best here, or the one that echoes."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from jobs.engine_choice import engine_device, engine_key, settings_for
from pipelines import devices, models
from pipelines.datasheets import datasheet_limits
from pipelines.engine_records import add_start, read_record
from pipelines.engines import EchoEngine, Engine, VllmEngine, open_vllm
from pipelines.engines.cpu_limits import cpu_limits, float_type
from pipelines.engines.settings import EngineSettings, has_inexact_int8
from pipelines.engines.vllm_engine import START_TIMEOUT_S
from pipelines.tools import EngineNeed
from schemas.checkpoints import Checkpoint
from schemas.engine_records import EngineStart
from schemas.model_shape import Roofline
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
        began_s = time.monotonic()
        roofline = self._roofline(need.checkpoint, chosen)
        within_s = START_TIMEOUT_S if need.ready_within_s is None else need.ready_within_s
        within_s -= time.monotonic() - began_s
        return open_vllm(
            need.checkpoint,
            chosen,
            environment=os.environ,
            log=self._log,
            roofline=roofline,
            start_timeout_s=max(0.0, min(START_TIMEOUT_S, within_s)),
        )

    def _roofline(self, checkpoint: Checkpoint, settings: EngineSettings) -> Roofline | None:
        """Return what the model needs and the device can do; None where one is not known.

        A CPU's limits are measured before the first engine on this machine is started; that
        time is on the run's bill as load.
        """
        shape = models.model_shape(
            checkpoint,
            value_bytes=4 if float_type(settings) == "float32" else 2,
            kv_value_bytes=1 if settings.kv_cache_dtype.value.startswith("fp8") else None,
            multiplies_int8=not has_inexact_int8(settings.device),
        )
        if shape is None:
            return None
        if settings.device.kind == "cuda":
            limits = datasheet_limits(settings.device.name)
        else:
            limits = cpu_limits(
                settings,
                environment=os.environ,
                cache_dir=self._cache_dir,
                on_note=self._on_note,
                log=self._log,
            )
        return None if limits is None else Roofline(shape=shape, limits=limits)

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
