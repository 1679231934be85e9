"""The tools that a run is done with, from this installation's settings."""

import json
from collections.abc import Callable
from pathlib import Path

from jobs.engine_pool import EnginePool
from jobs.openers import EchoOpener, VllmOpener
from jobs.settings import EngineKind, Settings
from pipelines import devices, models, quantize
from pipelines.tools import Tools
from schemas.checkpoints import Checkpoint, Weights
from schemas.errors import SettingsError
from schemas.forecasts import Forecast
from schemas.job_spec import JobSpec
from schemas.runs import Progress


def tools_for(
    settings: Settings,
    *,
    engine: EngineKind | None = None,
    pool: EnginePool | None = None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    on_forecast: Callable[[Forecast], None] = lambda _forecast: None,
    on_note: Callable[[str], None] = lambda _note: None,
    engine_log: Path | None = None,
    dagster_run_id: str | None = None,
) -> Tools:
    """Return the tools for runs on this machine; `on_note` gets what building a model says.

    Engines come from `pool`; without one each run has an engine of its own.
    """
    kind = engine or settings.engine
    engines = pool or engine_pool(settings, engine=kind, on_note=on_note, engine_log=engine_log)

    def checkpoint(job: JobSpec) -> Checkpoint:
        found = quantize.prepare(
            job.model.id,
            weights=job.model.weights,
            revision=job.model.revision,
            cache_dir=settings.cache_dir,
            report=on_note,
        )
        if kind == "vllm":
            _check_device(found)
        return found

    return Tools(
        checkpoint=checkpoint,
        context_length=context_length,
        open_engine=engines.lend,
        is_engine_warm=engines.is_warm,
        engine=kind,
        on_progress=on_progress,
        on_forecast=on_forecast,
        dagster_run_id=dagster_run_id,
    )


def engine_pool(
    settings: Settings,
    *,
    engine: EngineKind,
    on_note: Callable[[str], None] = lambda _note: None,
    engine_log: Path | None = None,
) -> EnginePool:
    """Return a pool of this machine's engines; what they print is appended to `engine_log`."""
    if engine == "echo":
        return EnginePool(EchoOpener(), on_note=on_note)
    return EnginePool(VllmOpener(settings.cache_dir, engine_log, on_note), on_note=on_note)


def context_length(job: JobSpec, checkpoint: Checkpoint) -> int:
    """Return how many tokens prompt and output of one request may have together.

    The model's own context, or less where the job says so.

    Raises:
        SettingsError: the job asks for more than the model has, or the model does not say.
    """
    config = json.loads((Path(checkpoint.path) / "config.json").read_text("utf-8"))
    text = config.get("text_config", config)
    found = text.get("max_position_embeddings")
    wanted = job.model.max_model_len
    if not isinstance(found, int):
        if wanted is None:
            raise SettingsError(
                f"{checkpoint.path}: config.json has no max_position_embeddings; "
                "say model.max_model_len in the job file"
            )
        return wanted
    if wanted is not None and wanted > found:
        raise SettingsError(
            f"model.max_model_len is {wanted}, the model's context is {found} tokens"
        )
    return found if wanted is None else wanted


def _check_device(checkpoint: Checkpoint) -> None:
    """Refuse weights that this device has no kernels or no memory for, before anything loads.

    A ready-made W8A8 folder is INT8 whatever the job calls it.
    """
    weights: Weights = "int8" if checkpoint.quantization == "W8A8" else checkpoint.weights
    num_bytes = sum(file.num_bytes for file in models.weight_files(checkpoint))
    devices.check_weights_fit(devices.describe(), weights, num_weight_bytes=num_bytes)
