"""What earlier runs of a job left for a new one to go by; only the last ones are read."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from pipelines.ledger import LINEAGE_KEY, recent_runs
from pipelines.prediction import Prediction
from pipelines.storage import HOLE, Store, stored_partitions
from pipelines.tables import read_own
from schemas.errors import VerificationError
from schemas.job_spec import JobSpec
from schemas.lineage import LINEAGE
from schemas.output_lengths import OutputLengths
from schemas.runs import RunIdentity

MAX_SIBLINGS = 16
"""Outputs of other partitions that are looked at: the last ones by name."""
MAX_RUNS = 4
"""Runs of one output that are looked at: those that readers were last pointed to."""
_NUM_READERS = 8


def earlier_outputs(
    job: JobSpec, output: Store, open_output: Callable[[str], Store]
) -> tuple[Store, ...]:
    """Return where runs of this job may lie: its output, then those of other partitions.

    At most `MAX_SIBLINGS` others, where they can be listed.
    """
    if job.partitions is None or HOLE not in job.output.uri:
        return (output,)
    uri = job.output.uri.replace("{name}", job.name)
    others = [
        open_output(uri.replace(HOLE, key).rstrip("/"))
        for key in stored_partitions(uri, open_output)[-MAX_SIBLINGS:]
    ]
    return (output, *(store for store in others if store.uri != output.uri))


def earlier_answers(outputs: Sequence[Store], identity: RunIdentity) -> Prediction:
    """Return what finished runs with this profile and prompt section say of output lengths.

    A run that is damaged, or of an older format, counts as none: a prediction is not the place
    to say so.
    """
    with ThreadPoolExecutor(max_workers=_NUM_READERS) as readers:
        found = [
            lengths
            for of_output in readers.map(lambda output: _of_output(output, identity), outputs)
            for lengths in of_output
        ]
    lengths = OutputLengths.sum(found)
    if not found:
        return Prediction(
            basis="max_tokens: no earlier run of this job is like it", lengths=lengths
        )
    runs = "1 earlier run" if len(found) == 1 else f"{len(found)} earlier runs"
    return Prediction(
        basis=f"{lengths.num_requests} answers of {runs}, by prompt length", lengths=lengths
    )


def _of_output(output: Store, identity: RunIdentity) -> list[OutputLengths]:
    try:
        runs = recent_runs(output, most=MAX_RUNS)
    except VerificationError:
        return []
    found = [_of_run(output.child(run_key), identity) for run_key in runs]
    return [lengths for lengths in found if lengths.num_requests]


def _of_run(run: Store, identity: RunIdentity) -> OutputLengths:
    try:
        table = read_own(run.get(LINEAGE_KEY), LINEAGE, key=LINEAGE_KEY)
        alike = pl.DataFrame(table.select(["profile_id", "prompt_id", "output_lengths"])).filter(
            profile_id=identity.profile_id, prompt_id=identity.prompt_id
        )
        return OutputLengths.sum(map(OutputLengths.from_text, alike["output_lengths"]))
    except (FileNotFoundError, VerificationError):
        return OutputLengths()
