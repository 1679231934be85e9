"""The whole flow, in reading order; the only module that knows every step."""

import time
from collections.abc import Sequence
from itertools import chain, islice

from pipelines.attempt import answer, budget_of
from pipelines.commit import make_current, seal
from pipelines.earlier import earlier_answers, earlier_outputs
from pipelines.forecast import forecast_of
from pipelines.ingest import count_rows, ingest
from pipelines.ledger import committed_batches, written_manifest
from pipelines.plan import plan
from pipelines.plan_parts import written_plan
from pipelines.prediction import Prediction, fixed_lengths
from pipelines.report import report_of
from pipelines.storage import Store
from pipelines.tokenize import Room
from pipelines.tools import Tools
from pipelines.trace import trace
from pipelines.work import Work, prepare
from schemas.forecasts import Forecast
from schemas.job_spec import JobSpec
from schemas.plans import Plan, PlannedBatch
from schemas.runs import RunReport


def run(
    job: JobSpec, tools: Tools, *, partition: str | None = None, limit: int | None = None
) -> RunReport:
    """Answer every prompt of the job's input once, and return how it went.

    What earlier attempts committed is kept; with nothing left to do no engine is started.
    However it ends, finished batches are committed, and the same call again does the rest.

    Raises:
        SettingsError: nothing was written.
        StoppedByLimitError, TryElsewhereError: the same call again resumes.
    """
    work = prepare(job, tools, partition=partition, limit=limit)
    manifest, forecast = written_manifest(work.store), None
    reused = committed_batches(work.store)
    if manifest is None:
        made = written_plan(work.store) or make_plan(work)
        pending = [batch for batch in made.batches if batch.batch_id not in reused]
        forecast = expect(work, pending) if pending else None
        work.progress.planned(made, reused, forecast)
        if forecast is not None:
            work.tools.on_forecast(forecast)
            answer(work, made, pending, forecast)
        manifest = seal(work.store, made)
    trace(work.store, manifest)
    make_current(work.output, work.identity.run_key, seen=work.seen_pointer, is_trial=work.is_trial)
    return report_of(
        work.store,
        manifest,
        reused,
        work.spent,
        job.price,
        wall_s=work.wall_s(),
        forecast=forecast,
    )


def make_plan(work: Work, store: Store | None = None) -> Plan:
    """Plan the run and write the plan into its store (or another, to look at it only)."""
    events = ingest(work.files, work.job, limit=work.limit)
    first = list(islice(events, 1))  # a column that is not there is told before anything is written
    num_rows_total = count_rows(work.files, work.limit)
    if store is None:
        work.output.probe()
    return plan(
        chain(first, events),
        store or work.store,
        work.identity,
        work.chat,
        room=Room(
            max_model_len=work.max_model_len,
            max_tokens=work.job.sampling.max_tokens,
            num_answer_tokens=work.asking.num_answer_tokens,
            question_tokens=work.asking.question_tokens,
        ),
        sampling=work.job.sampling.settings(),
        prediction=_prediction(work),
        max_batch_tokens=work.job.output.max_batch_tokens,
        on_progress=lambda num_rows: work.progress.planning(num_rows, num_rows_total),
    )


def _prediction(work: Work) -> Prediction:
    """Return what is known of the answers' lengths before the first one."""
    sampling = work.job.sampling.settings()
    if work.asking.num_answer_tokens is not None:
        return fixed_lengths("labels take a fixed number of tokens")
    if sampling.ignore_eos and not sampling.stop:
        return fixed_lengths("max_tokens: nothing else ends an answer")
    outputs = earlier_outputs(work.job, work.output, work.tools.open_output)
    return earlier_answers(outputs, work.identity)


def expect(work: Work, pending: Sequence[PlannedBatch]) -> Forecast:
    """Return what these batches are expected to take, before an engine is started."""
    forecast = forecast_of(
        pending,
        earlier_outputs(work.job, work.output, work.tools.open_output),
        work.checkpoint,
        engine=work.tools.engine,
        usd_per_device_hour=work.job.price.usd_per_device_hour,
        run=work.store,
    )
    if work.tools.is_engine_warm():
        forecast = forecast.without_load()
    return budget_of(work).warned(forecast, time.monotonic())
