"""The attempts at a run, as their records tell: who began, who ended, and what is damaged."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.storage import Store
from schemas.commits import Attempt, AttemptEnd, Commit, from_json
from schemas.errors import VerificationError

_RECORD = re.compile(r"attempts/(\d{4,6})(-end)?\.json")
_TOLERANCE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """The epochs of all attempts that began, the ends that can be read, and a line a fault.

    An attempt without an end was killed, or still runs: storage does not know which.
    """

    epochs: tuple[int, ...]
    ends: tuple[AttemptEnd, ...]
    faults: tuple[str, ...]


def read_attempts(run: Store) -> AttemptLog:
    """Return the attempts at this run, by epoch.

    A damaged record is a fault and never an error: no row of the run depends on it.
    """
    epochs: list[int] = []
    ends: list[AttemptEnd] = []
    faults: list[str] = []
    for item in run.list("attempts/"):
        name = _RECORD.fullmatch(item.key)
        if name is None:
            continue
        try:
            record = _record(run, item.key, epoch=int(name[1]), is_end=bool(name[2]))
        except VerificationError as error:
            faults.append(str(error))
        else:
            if isinstance(record, AttemptEnd):
                ends.append(record)
        if not name[2]:
            epochs.append(int(name[1]))
    return AttemptLog(epochs=tuple(epochs), ends=tuple(ends), faults=tuple(faults))


def _record(run: Store, key: str, *, epoch: int, is_end: bool) -> Attempt | AttemptEnd:
    content = run.get(key)
    if is_end:
        record: Attempt | AttemptEnd = from_json(AttemptEnd, content, key=key)
    else:
        record = from_json(Attempt, content, key=key)
    if record.epoch != epoch:
        raise VerificationError(f"{key}: is of attempt {record.epoch}")
    return record


def attempt_faults(log: AttemptLog, commits: Sequence[Commit]) -> Iterator[str]:
    """Yield what is wrong with the attempts of a run that has these commits.

    Damaged records; commits of attempts that never began; ends whose parts do not make their
    wall time, or whose batches and waste do not make the time in which they were busy.
    """
    yield from log.faults
    begun = set(log.epochs)
    for epoch in sorted({one.epoch for one in commits} - begun):
        yield f"attempts/{epoch:04d}.json: absent, named by commits"
    for end in log.ends:
        key = f"attempts/{end.epoch:04d}-end.json"
        if end.epoch not in begun:
            yield f"attempts/{end.epoch:04d}.json: absent, its end is there"
        parts_s = end.load_s + end.busy_s + end.idle_s + end.tail_idle_s
        if abs(parts_s - end.wall_s) > _TOLERANCE_S:
            yield f"{key}: {end.wall_s} s of wall time, its parts make {parts_s} s"
        if end.outcome != "finished":
            continue  # it may not have learned of its last commit
        batches_s = sum(one.lineage.device_s for one in commits if one.epoch == end.epoch)
        used_s = batches_s + end.wasted_s * end.num_devices
        if abs(used_s - end.busy_s * end.num_devices) > _TOLERANCE_S:
            yield (
                f"{key}: busy for {end.busy_s * end.num_devices} device-seconds, its batches and "
                f"its waste make {used_s}"
            )
