"""Resources: the machine that steps run on, and how its steps speak to Dagster.

Nothing here loads a model's libraries: transformers takes seconds to import, and every step
is a process of its own that loads all definitions first. Steps import what they need.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from jobs.progress_lines import progress_line
from jobs.settings import Settings, engine_kind
from schemas.errors import PromptmillError, TryElsewhereError
from schemas.forecasts import Forecast
from schemas.runs import Progress

if TYPE_CHECKING:
    from pipelines.tools import Tools

INTERVAL_S = 30.0
"""Seconds between two lines of progress."""
MAX_RETRIES = 2
RETRY_WAIT_S = 30.0
"""Seconds for a bucket or a machine to come back."""


class Machine(dg.ConfigurableResource["Machine"]):
    """The engine that answers and the folder of built models, from this installation's settings.

    Both can be changed for one run in the UI's launchpad.
    """

    engine: str
    cache_dir: str

    @classmethod
    def of(cls, settings: Settings) -> "Machine":
        """Return the machine that these settings describe."""
        return cls(engine=settings.engine, cache_dir=str(settings.cache_dir))

    def tools(self, context: dg.AssetExecutionContext) -> "Tools":
        """Return the tools of one step: they log into its run and carry its run id."""
        from jobs.tools import tools_for

        settings = Settings(
            job_folders=(), cache_dir=Path(self.cache_dir), engine=engine_kind(self.engine)
        )
        return tools_for(
            settings,
            on_progress=ProgressLog(context.log.info),
            on_forecast=lambda forecast: _log_forecast(context, forecast),
            on_note=context.log.info,
            dagster_run_id=context.run.run_id,
        )


def _log_forecast(context: dg.AssetExecutionContext, forecast: Forecast) -> None:
    from jobs.commands.texts import told

    log = context.log.info if forecast.warning is None else context.log.warning
    log("\n".join(told(forecast)))


class ProgressLog:
    """Logs how a run goes: one line when the phase changes, then one every 30 seconds."""

    def __init__(
        self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Log through `log`; `clock` gives seconds."""
        self._log = log
        self._clock = clock
        self._phase: str | None = None
        self._next_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Log this progress, if a line is due."""
        now = self._clock()
        if progress.phase == self._phase and now < self._next_s:
            return
        self._phase = progress.phase
        self._next_s = now + INTERVAL_S
        self._log(progress_line(progress))


@contextmanager
def told_to_dagster(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext,
) -> Generator[None]:
    """Turn promptmill's errors into what Dagster does next; the message says what a person does.

    Only what may go well later is tried again, `MAX_RETRIES` times. A retry policy on the
    asset would try a bug again too, and report only that it has no tries left. Everything
    else passes: a bug with its trace, and the interrupt by which Dagster terminates a step.
    """
    try:
        yield
    except TryElsewhereError as error:
        if context.op_execution_context.retry_number >= MAX_RETRIES:
            raise dg.Failure(description=str(error)) from error
        context.log.warning(f"trying again in {RETRY_WAIT_S:.0f} s: {error}")
        raise dg.RetryRequested(MAX_RETRIES, RETRY_WAIT_S) from error
    except PromptmillError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
