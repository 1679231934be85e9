"""Work: a run about to be done, with everything opened that its steps need."""

import time
from dataclasses import dataclass

from pipelines.accounting import Spent
from pipelines.asking import Asking
from pipelines.chat import ChatTokenizer, load
from pipelines.identity import identify, input_uri, output_uri
from pipelines.ingest import InputFiles, find_input
from pipelines.ledger import current_pointer
from pipelines.progress import ProgressMeter
from pipelines.questions import asking_of
from pipelines.storage import Store
from pipelines.tools import Tools
from schemas.checkpoints import Checkpoint
from schemas.commits import Current
from schemas.errors import SettingsError
from schemas.job_spec import JobSpec
from schemas.runs import RunIdentity

REHEARSAL_ENGINE = "echo"
"""The engine whose answers mean nothing; its runs are trials."""


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
