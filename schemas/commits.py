"""Facts that lie on storage as JSON: attempts, commits, the manifest and the pointer to it."""

from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas.errors import VerificationError
from schemas.forecasts import Forecast
from schemas.lineage import BatchLineage
from schemas.plans import Plan
from schemas.step_sums import StepSums

PartKind = Literal["generations", "rejects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One immutable Parquet file of a batch: key below the run, rows, bytes, SHA-256."""

    kind: PartKind
    key: str
    num_rows: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Who writes: put once of max+1, so epochs never repeat within a run.

    `started_at` is wall-clock text for people; nothing is ordered by it. `forecast` is what
    the attempt was expected to take; what it took is in its bill.
    """

    epoch: int
    host: str
    pid: int
    dagster_run_id: str | None
    started_at: str
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUse:
    """What an attempt has used up to one moment: load + busy + idle + tail idle = wall.

    `wall_s` runs from the first engine's start; `load_s` is until engines were ready, with
    the measuring of the device where that was still to be done; `busy_s` are engine steps.
    `tail_idle_s` is what was neither after the last request had gone into the engine (its
    last commits, its end), `idle_s` what was neither before that. All in seconds of wall time;
    device-seconds are these times `num_devices`.
    """

    num_devices: int
    usd_per_device_hour: float
    wall_s: float
    load_s: float
    busy_s: float
    idle_s: float
    tail_idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd(AttemptUse):
    """The bill of one attempt, put when it ends.

    Of the busy seconds `wasted_s` belonged to batches that another attempt committed first or
    that were not finished. `usd` is the price of the device-seconds held. `step_sums` is what
    its engine steps had in them and took, for later forecasts.
    """

    epoch: int
    wasted_s: float
    usd: float
    num_engine_restarts: int
    outcome: str
    step_sums: StepSums = field(default_factory=StepSums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """After it is on storage all rows of a batch count, before it none.

    `so_far` is what its attempt had used when the batch was finished: an attempt that is
    killed leaves no other bill. None where no engine was started.
    """

    version: int
    run_key: str
    batch_id: str
    epoch: int
    parts: tuple[Part, ...]
    num_rows: int
    num_generations: int
    num_rejects: int
    rejects_by_code: dict[str, int]
    lineage: BatchLineage
    so_far: AttemptUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What readers trust: every planned batch has a commit, and the rows add up."""

    version: int
    run_key: str
    plan_sha256: str
    num_rows: int
    num_generations: int
    num_rejects: int
    rejects_by_code: dict[str, int]
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """Which run readers should read: version n + 1 replaces version n.

    A trial (part of the input, or the echo engine) never takes the place of a real run.
    """

    version: int
    run_key: str
    is_trial: bool = False


R = TypeVar("R", Plan, Attempt, AttemptEnd, Commit, Manifest, Current)
_Record = Plan | Attempt | AttemptEnd | Commit | Manifest | Current
_ADAPTERS: dict[type[_Record], TypeAdapter[_Record]] = {
    kind: TypeAdapter(kind) for kind in (Plan, Attempt, AttemptEnd, Commit, Manifest, Current)
}


def to_json(record: _Record) -> bytes:
    """Return the record as the JSON bytes that lie on storage."""
    return _ADAPTERS[type(record)].dump_json(record, indent=1)


def from_json(kind: type[R], content: bytes, *, key: str) -> R:
    """Return the record that these bytes of `key` hold.

    Raises:
        VerificationError: they are not JSON of this kind: cut short, or changed.
    """
    try:
        return _ADAPTERS[kind].validate_json(content)  # type: ignore[return-value]
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise VerificationError(
            f"{key}: not a {kind.__name__.lower()}: {where} {fault['msg']}"
        ) from error
