"""Commit: after it all rows of a batch count, before it none; then the manifest seals the run.

Everything here is put once or derived, so any number of workers may do it at the same time
and any of them may die at any call. Nothing is ordered by a clock.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from pipelines.ledger import (
    MANIFEST_KEY,
    commit_key,
    commits_of,
    current_pointer,
    next_number,
    orphans,
)
from pipelines.outcomes import Outcome
from pipelines.plan_parts import PLAN_KEY
from pipelines.storage import Store
from pipelines.tables import parquet_bytes
from schemas.commits import (
    Attempt,
    AttemptEnd,
    Commit,
    Current,
    Manifest,
    Part,
    PartKind,
    from_json,
    to_json,
)
from schemas.errors import ContractError
from schemas.forecasts import Forecast
from schemas.generations import GENERATIONS
from schemas.ids import batch_id, part_key, sha256_hex
from schemas.plans import Plan
from schemas.rejects import REJECTS

CURRENT_KEY = "current.json"
_SCHEMAS = {"generations": GENERATIONS, "rejects": REJECTS}


def open_attempt(
    store: Store, *, dagster_run_id: str | None, forecast: Forecast | None = None
) -> Attempt:
    """Return a new attempt at this run, under an epoch that no other attempt has."""
    while True:
        epoch = next_number(store, "attempts/")
        attempt = Attempt(
            epoch=epoch,
            host=socket.gethostname(),
            pid=os.getpid(),
            dagster_run_id=dagster_run_id,
            started_at=datetime.now(UTC).isoformat(),
            forecast=forecast,
        )
        if store.put_once(f"attempts/{epoch:04d}.json", to_json(attempt)):
            return attempt


def end_attempt(store: Store, end: AttemptEnd) -> None:
    """Put the attempt's bill beside its start; an attempt that was killed has none."""
    store.put_once(f"attempts/{end.epoch:04d}-end.json", to_json(end))


def commit(store: Store, outcome: Outcome, *, epoch: int) -> Commit:
    """Publish the batch's rows, or return the commit of a worker that did so before.

    1. the parts, 2. the commit. A crash between them leaves parts that nobody reads. The
    loser of a race takes its own parts away and keeps none of its rows.
    """
    parts = tuple(_put_parts(store, outcome, epoch))
    own = Commit(
        version=1,
        run_key=outcome.lineage.run_key,
        batch_id=outcome.batch_id,
        epoch=epoch,
        parts=parts,
        num_rows=outcome.generations.num_rows + outcome.rejects.num_rows,
        num_generations=outcome.generations.num_rows,
        num_rejects=outcome.rejects.num_rows,
        rejects_by_code=outcome.rejects_by_code,
        lineage=outcome.lineage,
        so_far=outcome.so_far,
    )
    key = commit_key(outcome.batch_id)
    if store.put_once(key, to_json(own)):
        return own
    winner = from_json(Commit, store.get(key), key=key)
    _delete_unnamed(store, (part.key for part in parts), (winner,))
    return winner


def _put_parts(store: Store, outcome: Outcome, epoch: int) -> Iterable[Part]:
    """Put the batch's parts: generations always, rejects where there are any.

    The first batch has both, so that a run's folders always hold files of the right schema.
    """
    kinds: tuple[PartKind, ...] = ("generations", "rejects")
    for kind in kinds:
        table = outcome.generations if kind == "generations" else outcome.rejects
        if kind == "rejects" and table.num_rows == 0 and outcome.batch_id != batch_id(0):
            continue
        content = parquet_bytes(table, _SCHEMAS[kind])
        sha256 = sha256_hex(content)
        key = part_key(kind, outcome.batch_id, epoch, sha256)
        store.put(key, content)
        yield Part(
            kind=kind, key=key, num_rows=table.num_rows, num_bytes=len(content), sha256=sha256
        )


def seal(store: Store, plan: Plan) -> Manifest:
    """Put the run's manifest, once every planned batch has a commit, and sweep its orphans.

    Raises:
        ContractError: a batch's commit has not the rows that were planned; nothing is sealed.
        FileNotFoundError: a planned batch has no commit.
    """
    commits = commits_of(store, (batch.batch_id for batch in plan.batches))
    for batch, found in zip(plan.batches, commits, strict=True):
        if batch.num_rows != found.num_generations + found.num_rejects:
            raise ContractError(
                f"batch {batch.batch_id}: {batch.num_rows} rows were planned, its commit has "
                f"{found.num_generations} generations and {found.num_rejects} rejects"
            )
    by_code = sum((Counter(one.rejects_by_code) for one in commits), Counter[str]())
    manifest = Manifest(
        version=1,
        run_key=plan.run_key,
        plan_sha256=sha256_hex(store.get(PLAN_KEY)),
        num_rows=plan.num_rows,
        num_generations=sum(one.num_generations for one in commits),
        num_rejects=sum(one.num_rejects for one in commits),
        rejects_by_code=dict(sorted(by_code.items())),
        commits=commits,
    )
    if not store.put_once(MANIFEST_KEY, to_json(manifest)):
        manifest = from_json(Manifest, store.get(MANIFEST_KEY), key=MANIFEST_KEY)
    sweep(store, manifest)
    return manifest


def sweep(store: Store, manifest: Manifest) -> tuple[str, ...]:
    """Delete the orphans of a sealed run and return their keys.

    Commits are immutable and every batch has one, so no part that is absent from them can
    become part of the run: a worker still writing loses its commit.
    """
    keys = orphans(store, manifest)
    for key in keys:
        store.delete(key)
    return keys


def _delete_unnamed(store: Store, keys: Iterable[str], commits: Iterable[Commit]) -> None:
    named = {part.key for one in commits for part in one.parts}
    for key in keys:
        if key not in named:
            store.delete(key)


def make_current(
    output: Store, run_key: str, *, seen: Current | None, is_trial: bool = False
) -> None:
    """Make this run the one that readers of this output read, unless a later one is.

    `seen` is what the pointer was when this run was asked for: if it is another one now, a run
    that was asked for later has ended already, and stays. A trial does not take the place of a
    real run. The pointer is the highest number below `current/`; `current.json` is a copy of
    it for people, put right by every run that ends.
    """
    now = current_pointer(output)
    is_older = now is not None and (seen is None or now.version != seen.version)
    keeps = now is not None and (now.run_key == run_key or (is_trial and not now.is_trial))
    if now is None or not (is_older or keeps):
        version = next_number(output, "current/")
        pointer = Current(version=version, run_key=run_key, is_trial=is_trial)
        output.put_once(f"current/{version:06d}.json", to_json(pointer))
        now = current_pointer(output) or pointer
    content = to_json(now)
    if not output.exists(CURRENT_KEY) or output.get(CURRENT_KEY) != content:
        output.put(CURRENT_KEY, content)
