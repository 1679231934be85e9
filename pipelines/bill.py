"""Bill: what the batches of a run cost, and that they and the rest make what devices were held."""

from dataclasses import dataclass

from pipelines.ledger import attempt_ends, commits_of, committed_batches, written_manifest
from pipelines.storage import Store
from schemas.commits import AttemptEnd
from schemas.lineage import BatchLineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A run's batches and attempts, and their sums in device-seconds.

    Of the attempts that ended: `batches_s` (their batches) + `wasted_s` (batches that another
    attempt committed first, or that were not finished) + `load_s` + `idle_s` = `held_s`, to
    within rounding: `difference_s` is what is missing. An attempt that was killed has no bill;
    its batches are `unbilled_s`, and what else it held is not known.
    """

    run_uri: str
    is_finished: bool
    batches: tuple[BatchLineage, ...]
    attempts: tuple[AttemptEnd, ...]
    num_attempts_without_bill: int
    batches_s: float
    wasted_s: float
    load_s: float
    idle_s: float
    held_s: float
    difference_s: float
    unbilled_s: float
    batches_usd: float
    held_usd: float


def bill_of(run: Store) -> Bill:
    """Return the bill of a run, finished or not.

    Raises:
        VerificationError: a record of the run is damaged.
    """
    manifest = written_manifest(run)
    if manifest is None:
        commits = commits_of(run, sorted(committed_batches(run)))
    else:
        commits = manifest.commits
    ends = attempt_ends(run)
    billed = {end.epoch for end in ends}
    batches = tuple(commit.lineage for commit in commits)
    batches_s = sum(batch.device_s for batch in batches if batch.epoch in billed)
    wasted_s = sum(end.wasted_s * end.num_devices for end in ends)
    load_s = sum(end.load_s * end.num_devices for end in ends)
    idle_s = sum(end.idle_s * end.num_devices for end in ends)
    held_s = sum(end.wall_s * end.num_devices for end in ends)
    return Bill(
        run_uri=run.uri,
        is_finished=manifest is not None,
        batches=batches,
        attempts=ends,
        num_attempts_without_bill=_num_starts(run) - len(ends),
        batches_s=batches_s,
        wasted_s=wasted_s,
        load_s=load_s,
        idle_s=idle_s,
        held_s=held_s,
        difference_s=held_s - batches_s - wasted_s - load_s - idle_s,
        unbilled_s=sum(batch.device_s for batch in batches if batch.epoch not in billed),
        batches_usd=sum(batch.usd for batch in batches),
        held_usd=sum(end.usd for end in ends),
    )


def _num_starts(run: Store) -> int:
    return sum(not item.key.endswith("-end.json") for item in run.list("attempts/"))
