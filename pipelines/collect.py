"""Collect: what lies at an output that nobody will read, and its removal.

What a manifest or a plan names is never deleted from a run that stays.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.ledger import (
    MANIFEST_KEY,
    PART_FOLDERS,
    current_run,
    orphans,
    written_manifest,
)
from pipelines.plan_parts import PLAN_KEY, written_plan
from pipelines.storage import Store, StoredObject
from schemas.errors import SettingsError

RunState = Literal["current", "superseded", "other_partition", "unfinished", "not_planned"]
"""`superseded`: finished, and not the one that readers read; `other_partition`: likewise, and
of another partition than that one, so nothing replaces it. `not_planned`: has no plan yet."""

_RUN_KEY = re.compile(r"[a-z]+[0-9]+-[0-9a-f]{64}")
_DRAFTS_KEPT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run below an output: its state, its size, and the keys in it that nothing names."""

    run_key: str
    state: RunState
    num_objects: int
    num_bytes: int
    orphans: tuple[str, ...]
    num_orphan_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The runs at an output, as they were found, and what was deleted of them."""

    output_uri: str
    runs: tuple[StoredRun, ...]
    num_deleted: int = 0
    num_deleted_bytes: int = 0
    deleted_runs: tuple[str, ...] = ()


def survey(output: Store) -> Collection:
    """Return the runs at this output, sorted by key; nothing is changed.

    Raises:
        SettingsError: there is no run here; names what is.
        VerificationError: a run's plan or manifest is damaged.
    """
    objects: dict[str, list[StoredObject]] = defaultdict(list)
    for item in output.list(""):
        folder, _, key = item.key.partition("/")
        if key and _RUN_KEY.fullmatch(folder):
            objects[folder].append(StoredObject(key=key, num_bytes=item.num_bytes))
    if not objects:
        names = ", ".join(output.list_names("")[:8])
        raise SettingsError(
            f"no runs at {output.uri}\n  expected: an output, which holds folders `run1-…`\n"
            f"  found: {names or 'nothing'}"
        )
    current = current_run(output)
    plan = None if current is None else written_plan(output.child(current))
    partition = None if plan is None else plan.partition
    return Collection(
        output_uri=output.uri,
        runs=tuple(
            _stored_run(output.child(key), key, found, is_current=key == current, of=partition)
            for key, found in sorted(objects.items())
        ),
    )


def collect(output: Store, *, superseded: bool) -> Collection:
    """Delete orphans of finished runs and, where asked for, superseded runs whole.

    Superseded runs stay where the current one has no manifest: they may be all there is.

    No run may be working at this output meanwhile: one that has just begun to answer from a
    superseded run's commits would lose them. Half-written files older than a day go as well.
    A crash half way leaves every run readable or resumable; the same call does the rest.

    Raises:
        SettingsError: there is no run here.
    """
    found = survey(output)
    sizes = {item.key: item.num_bytes for item in output.list("")}
    has_current = superseded and any(run.state == "current" for run in found.runs)
    deleted: list[str] = []
    whole: list[str] = []
    for stored in found.runs:
        run = output.child(stored.run_key)
        if stored.state == "superseded" and has_current and current_run(output) != stored.run_key:
            deleted += (f"{stored.run_key}/{key}" for key in _delete_run(run))
            whole.append(stored.run_key)
        else:
            for key in stored.orphans:
                run.delete(key)
                deleted.append(f"{stored.run_key}/{key}")
    output.sweep_drafts(min_age_s=_DRAFTS_KEPT_S)
    return Collection(
        output_uri=found.output_uri,
        runs=found.runs,
        num_deleted=len(deleted),
        num_deleted_bytes=sum(sizes.get(key, 0) for key in deleted),
        deleted_runs=tuple(whole),
    )


def _stored_run(
    run: Store, key: str, objects: Sequence[StoredObject], *, is_current: bool, of: str | None
) -> StoredRun:
    """Describe one run, where the current run is one `of` this partition."""
    unnamed = frozenset(_unnamed(run))
    state = _state({item.key for item in objects}, is_current=is_current)
    plan = written_plan(run)
    is_other = plan is not None and plan.partition != of
    return StoredRun(
        run_key=key,
        state="other_partition" if is_other and state == "superseded" else state,
        num_objects=len(objects),
        num_bytes=sum(item.num_bytes for item in objects),
        orphans=tuple(sorted(unnamed)),
        num_orphan_bytes=sum(item.num_bytes for item in objects if item.key in unnamed),
    )


def _state(keys: set[str], *, is_current: bool) -> RunState:
    if MANIFEST_KEY in keys:
        return "current" if is_current else "superseded"
    return "unfinished" if PLAN_KEY in keys else "not_planned"


def _unnamed(run: Store) -> list[str]:
    """Return what no manifest or plan of a finished run names; nothing for any other run.

    In a finished run every batch has its commit and the plan is fixed, so a part that they do
    not name will never count, even if its writer still lives.
    """
    plan, manifest = written_plan(run), written_manifest(run)
    if plan is None or manifest is None:
        return []
    planned = {PLAN_KEY, *(part.key for part in plan.parts)}
    plan_parts = [item.key for item in run.list("plan/") if item.key not in planned]
    return [*orphans(run, manifest), *plan_parts]


def _delete_run(run: Store) -> list[str]:
    """Delete every object of a run, in an order in which a crash never leaves a false one.

    1. the manifest: readers are told that the run is not finished, a rerun seals it again;
    2. the commits: a rerun answers their batches again; 3. the parts, which nothing names now;
    4. the plan; 5. the rest.
    """
    keys = [item.key for item in run.list("")]
    folders = (MANIFEST_KEY, "commits/", *(f"{name}/" for name in PART_FOLDERS), PLAN_KEY)

    def rank(key: str) -> int:
        return next((n for n, folder in enumerate(folders) if key.startswith(folder)), len(folders))

    in_order = sorted(keys, key=rank)
    for key in in_order:
        run.delete(key)
    return in_order
