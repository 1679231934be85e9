"""Bill: what the batches of a run cost, and that they and the rest make what devices were held."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.attempt_log import AttemptLog, read_attempts
from pipelines.ledger import commits_of, committed_batches, written_manifest
from pipelines.storage import Store
from schemas.commits import AttemptEnd, AttemptUse, Commit
from schemas.lineage import BatchLineage

AttemptState = Literal["ended", "no_end", "unknown"]
"""How an attempt's bill is known: by its own end record; by its last commit, since it was
killed (or still runs, or its record is damaged); not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where device-seconds, or their USD, went: five parts that make `held`.

    `batches` were committed, `wasted` was computed for nothing: lost races and batches that
    were not finished. `tail_idle` is idle after the last request had gone into the engine.
    `difference` is what is missing of the sum, to within rounding.
    """

    batches: float
    wasted: float
    load: float
    idle: float
    tail_idle: float
    held: float

    @property
    def difference(self) -> float:
        """What was held and is in none of the parts."""
        return self.held - self.batches - self.wasted - self.load - self.idle - self.tail_idle

    def times(self, factor: float) -> "Shares":
        """Return these shares in another unit."""
        return Shares(**{name: getattr(self, name) * factor for name in self.__slots__})

    @staticmethod
    def sum(shares: Sequence["Shares"]) -> "Shares":
        """Return the sum, part by part."""
        names = Shares.__slots__
        return Shares(**{name: sum(getattr(one, name) for one in shares) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBill:
    """What one attempt used; of one without an end only up to its last commit.

    What such an attempt held after that is not known and in no sum. `use` is None where
    nothing at all is known: it committed nothing.
    """

    epoch: int
    state: AttemptState
    num_batches: int
    use: AttemptUse | None
    device_s: Shares
    usd: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A run's batches and attempts, and the attempts' sums in device-seconds and USD.

    `num_partly_known` attempts have no end record and are counted up to their last commit,
    `num_unknown` attempts left nothing to count. `faults` names records that are damaged.
    """

    run_uri: str
    is_finished: bool
    batches: tuple[BatchLineage, ...]
    attempts: tuple[AttemptBill, ...]
    device_s: Shares
    usd: Shares
    num_partly_known: int
    num_unknown: int
    faults: tuple[str, ...]
    limit_s: float | None
    fraction_of_limit: float | None


def bill_of(run: Store) -> Bill:
    """Return the bill of a run, finished or not.

    Raises:
        VerificationError: a commit or the manifest is damaged; a damaged attempt is a fault
            in the bill.
    """
    manifest = written_manifest(run)
    if manifest is None:
        commits = commits_of(run, sorted(committed_batches(run)))
    else:
        commits = manifest.commits
    log = read_attempts(run)
    attempts = attempt_bills(log, commits)
    batches = tuple(commit.lineage for commit in commits)
    metered = [one for one in batches if one.limit_s is not None]
    metered_s = sum(one.device_s for one in metered)
    limit_s = sum(one.limit_s or 0.0 for one in metered)
    return Bill(
        run_uri=run.uri,
        is_finished=manifest is not None,
        batches=batches,
        attempts=attempts,
        device_s=Shares.sum([one.device_s for one in attempts]),
        usd=Shares.sum([one.usd for one in attempts]),
        num_partly_known=sum(one.state == "no_end" for one in attempts),
        num_unknown=sum(one.state == "unknown" for one in attempts),
        faults=log.faults,
        limit_s=limit_s if metered else None,
        fraction_of_limit=limit_s / metered_s if metered_s > 0 else None,
    )


def attempt_bills(log: AttemptLog, commits: Sequence[Commit]) -> tuple[AttemptBill, ...]:
    """Return the bill of every attempt, by epoch."""
    ends = {end.epoch: end for end in log.ends}
    epochs = sorted({*log.epochs, *ends, *(one.epoch for one in commits)})
    own = {epoch: [one for one in commits if one.epoch == epoch] for epoch in epochs}
    return tuple(_attempt_bill(epoch, ends.get(epoch), own[epoch]) for epoch in epochs)


def _attempt_bill(epoch: int, end: AttemptEnd | None, commits: Sequence[Commit]) -> AttemptBill:
    """Return the bill of one attempt: by its end, or else by its last commit.

    One that was interrupted may have published a batch and not have learned of it: what it
    wasted is then what its commits do not hold.
    """
    known = [one.so_far for one in commits if one.so_far is not None]
    use = end or max(known, key=lambda one: one.wall_s, default=None)
    batches_s = sum(one.lineage.device_s for one in commits)
    if use is None:
        device_s, factor = Shares(batches=0, wasted=0, load=0, idle=0, tail_idle=0, held=0), 0.0
    else:
        wasted_s = use.busy_s * use.num_devices - batches_s
        if end is not None and end.outcome == "finished":
            wasted_s = end.wasted_s * end.num_devices
        device_s = _shares(use, batches_s, wasted_s)
        factor = use.usd_per_device_hour / 3600
    return AttemptBill(
        epoch=epoch,
        state="ended" if end is not None else "unknown" if use is None else "no_end",
        num_batches=len(commits),
        use=use,
        device_s=device_s,
        usd=device_s.times(factor),
    )


def _shares(use: AttemptUse, batches_s: float, wasted_s: float) -> Shares:
    return Shares(
        batches=batches_s,
        wasted=wasted_s,
        load=use.load_s * use.num_devices,
        idle=use.idle_s * use.num_devices,
        tail_idle=use.tail_idle_s * use.num_devices,
        held=use.wall_s * use.num_devices,
    )
