"""The whole flow, in reading order; the only module that knows every step."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice

from pipelines.accounting import Spent
from pipelines.asking import Asking
from pipelines.bill import bill_of
from pipelines.chat import ChatTokenizer, load
from pipelines.commit import commit, end_attempt, make_current, open_attempt, seal
from pipelines.earlier import earlier_answers, earlier_outputs
from pipelines.forecast import forecast_of
from pipelines.generate import generate
from pipelines.identity import identify, input_uri, output_uri
from pipelines.ingest import InputFiles, find_input, ingest
from pipelines.ledger import committed_batches, current_pointer, written_manifest
from pipelines.limits import Budget, Gate
from pipelines.outcomes import OutcomeWriter
from pipelines.pace import Pace
from pipelines.plan import plan
from pipelines.plan_parts import read_batches, written_plan
from pipelines.prediction import Prediction, fixed_lengths
from pipelines.progress import ProgressMeter
from pipelines.questions import asking_of
from pipelines.report import report_of
from pipelines.storage import Store
from pipelines.tokenize import Room
from pipelines.tools import EngineNeed, Tools
from pipelines.trace import trace
from schemas.checkpoints import Checkpoint
from schemas.commits import Attempt, AttemptEnd, Current
from schemas.errors import SettingsError, StoppedByLimitError
from schemas.forecasts import Forecast
from schemas.job_spec import JobSpec
from schemas.plans import Plan, PlannedBatch
from schemas.runs import RunIdentity, RunReport
from schemas.workloads import workload_of

REHEARSAL_ENGINE = "echo"
"""The engine whose answers mean nothing; its runs are trials."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A run about to be done: everything that the steps need, opened."""

    job: JobSpec
    tools: Tools
    limit: int | None
    checkpoint: Checkpoint
    max_model_len: int
    chat: ChatTokenizer
    asking: Asking
    identity: RunIdentity
    files: InputFiles
    output: Store
    store: Store
    seen_pointer: Current | None
    spent: Spent
    progress: ProgressMeter
    started_s: float

    @property
    def is_trial(self) -> bool:
        """Whether this run is for looking only: part of the input, or no model's answers."""
        return self.limit is not None or self.tools.engine == REHEARSAL_ENGINE

    def wall_s(self) -> float:
        """Return seconds since the run was asked for."""
        return time.monotonic() - self.started_s


def prepare(
    job: JobSpec, tools: Tools, *, partition: str | None = None, limit: int | None = None
) -> Work:
    """Find the input, the model and the output, and return the run that they make.

    Raises:
        SettingsError: one of them is not there or does not fit; nothing was written.
    """
    started = time.monotonic()
    files = find_input(input_uri(job, partition))
    output = tools.open_output(output_uri(job, partition))
    is_within = f"{output.uri}/".startswith(f"{files.store.uri}/")
    if is_within and not files.uri.endswith(files.keys[0]):
        raise SettingsError(
            f"output {output.uri} lies in the input {files.uri}: the next run would read what "
            "this one writes; put it elsewhere"
        )
    checkpoint = tools.checkpoint(job)
    chat = load(checkpoint.path)
    identity = identify(
        job,
        checkpoint,
        list(zip(files.keys, files.fingerprints, strict=True)),
        input_uri=files.uri,
        partition=partition,
        limit=limit,
        engine=tools.engine,
    )
    spent = Spent()
    return Work(
        job=job,
        tools=tools,
        limit=limit,
        checkpoint=checkpoint,
        max_model_len=tools.context_length(job, checkpoint),
        chat=chat,
        asking=asking_of(job, chat),
        identity=identity,
        files=files,
        output=output,
        store=output.child(identity.run_key),
        seen_pointer=current_pointer(output),
        spent=spent,
        progress=ProgressMeter(tools.on_progress, job.price.usd_per_device_hour),
        started_s=started,
    )


def make_plan(work: Work, store: Store | None = None) -> Plan:
    """Plan the run and write the plan into its store (or another, to look at it only)."""
    events = ingest(work.files, work.job, limit=work.limit)
    first = list(islice(events, 1))  # a column that is not there is told before anything is written
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
        on_progress=work.progress.planning,
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
