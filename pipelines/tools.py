"""Tools: what a run is given by its caller, and what it says when it needs an engine."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.engines import Engine
from pipelines.storage import Store, open_store
from schemas.checkpoints import Checkpoint
from schemas.forecasts import Forecast
from schemas.job_spec import JobSpec
from schemas.runs import Progress
from schemas.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNeed:
    """What an engine is needed for: all that decides how it is started but the device.

    No request is longer than `context_length` tokens, prompt and output together. `workload` is
    what waits for it, None where that is not known. `forecast_s` are the seconds of engine steps
    that are expected, None where nobody made a forecast. After `ready_within_s` seconds there is no
    time left to use it, None: no limit.
    """

    job: JobSpec
    checkpoint: Checkpoint
    context_length: int
    workload: Workload | None = None
    forecast_s: float | None = None
    ready_within_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the caller supplies: a model's files, an engine for them, and who is asking.

    `engine` names the engine that `open_engine` opens; it is part of what a run is. The run
    closes the engine that it was given; what that means is its owner's affair.
    """

    checkpoint: Callable[[JobSpec], Checkpoint]
    context_length: Callable[[JobSpec, Checkpoint], int]
    open_engine: Callable[[EngineNeed], Engine]
    engine: str
    open_output: Callable[[str], Store] = open_store
    on_progress: Callable[[Progress], None] = lambda _progress: None
    is_engine_warm: Callable[[], bool] = lambda: False
    on_forecast: Callable[[Forecast], None] = lambda _forecast: None
    dagster_run_id: str | None = None
