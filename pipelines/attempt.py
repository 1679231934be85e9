"""An attempt at a run: an engine answers what has no commit yet, within the job's limits."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pipelines.bill import bill_of
from pipelines.commit import commit, end_attempt, open_attempt
from pipelines.generate import generate
from pipelines.ledger import committed_batches
from pipelines.limits import Budget, Gate
from pipelines.outcomes import OutcomeWriter
from pipelines.pace import Pace
from pipelines.plan_parts import read_batches
from pipelines.prediction import prediction_of
from pipelines.tools import EngineNeed
from pipelines.work import Work
from schemas.commits import Attempt, AttemptEnd
from schemas.errors import StoppedByLimitError
from schemas.forecasts import Forecast
from schemas.plans import Plan, PlannedBatch
from schemas.workloads import workload_of


def budget_of(work: Work) -> Budget:
    """Return what the job's limits leave to this attempt."""
    limits = work.job.limits
    return Budget(
        usd_per_device_hour=work.job.price.usd_per_device_hour,
        started_s=work.started_s,
        max_usd=limits.max_usd,
        deadline_s=limits.deadline_s,
        earlier_usd=0.0 if limits.max_usd is None else bill_of(work.store).usd.held,
    )


def answer(work: Work, made: Plan, pending: Sequence[PlannedBatch], forecast: Forecast) -> None:
    """Generate and commit these batches, as one attempt.

    Raises:
        StoppedByLimitError: says what is done, and what the rest would need.
    """
    gate = Gate(budget_of(work), Pace.of(pending, forecast), forecast.load_s, work.spent)
    try:
        _generate(work, made, pending, forecast, gate)
    except StoppedByLimitError as stop:
        rest = gate.rest(made, committed_batches(work.store))
        raise StoppedByLimitError(f"{stop}; {rest}") from None


def _generate(
    work: Work, made: Plan, pending: Sequence[PlannedBatch], forecast: Forecast, gate: Gate
) -> None:
    job, store = work.job, work.store
    with _attempt(work, forecast) as attempt:
        writer = OutcomeWriter(
            identity=work.identity,
            checkpoint=work.checkpoint,
            asking=work.asking,
            sampling=job.sampling.settings(),
            file_keys=tuple(file.key for file in made.files),
            epoch=attempt.epoch,
            price=job.price,
            keep_invalid_text=job.output.keep_invalid_text,
        )
        generate(
            read_batches(store, made, pending),
            lambda: work.tools.open_engine(
                replace(
                    engine_need(work, made, pending, forecast),
                    ready_within_s=gate.left_s(time.monotonic()),
                )
            ),
            work.asking,
            job.sampling.settings(),
            lambda done: commit(store, writer.outcome(done), epoch=attempt.epoch),
            prediction=prediction_of(made),
            epoch=attempt.epoch,
            spent=work.spent,
            gate=gate,
            on_progress=work.progress.generating,
        )


def engine_need(
    work: Work, made: Plan, pending: Sequence[PlannedBatch], forecast: Forecast | None = None
) -> EngineNeed:
    """Return what an engine for these batches of the plan has to be able to do."""
    return EngineNeed(
        job=work.job,
        checkpoint=work.checkpoint,
        context_length=work.max_model_len,
        workload=workload_of(made, pending),
        forecast_s=None if forecast is None else forecast.busy_s,
    )


@contextmanager
def _attempt(work: Work, forecast: Forecast) -> Generator[Attempt]:
    """Open an attempt, and put its bill when it ends, however it ends."""
    attempt = open_attempt(work.store, dagster_run_id=work.tools.dagster_run_id, forecast=forecast)
    outcome = "interrupted"
    try:
        yield attempt
        outcome = "finished"
    finally:
        spent = work.spent
        end_attempt(
            work.store,
            AttemptEnd(
                epoch=attempt.epoch,
                num_devices=spent.num_devices,
                usd_per_device_hour=work.job.price.usd_per_device_hour,
                wall_s=spent.wall_s,
                load_s=spent.load_s,
                busy_s=spent.meter.busy_s,
                wasted_s=spent.wasted_s,
                idle_s=spent.idle_s,
                tail_idle_s=spent.tail_idle_s,
                usd=spent.usd(work.job.price.usd_per_device_hour),
                num_engine_restarts=spent.num_restarts,
                outcome=outcome,
                step_sums=spent.steps.sums(),
            ),
        )
