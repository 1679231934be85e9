"""Audit: whether a run on storage is what its manifest says, and holds every input row once.

Reads everything and trusts nothing: bytes against hashes, rows against counts, row keys
against the plan and against the input itself where that is still what was planned.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.attempt_log import attempt_faults, read_attempts
from pipelines.ledger import LINEAGE_KEY, commits_of, lineage_table, written_manifest
from pipelines.plan_parts import PLAN_KEY, read_batches, written_plan
from pipelines.storage import Store, expand_input
from pipelines.tables import NOT_TEXT, ParquetInput, UnreadableFileError, read_own, values
from schemas.commits import Commit, Manifest, Part
from schemas.errors import PromptmillError, VerificationError
from schemas.generations import GENERATIONS
from schemas.ids import is_position_key, position_key, sha256_hex
from schemas.lineage import LINEAGE
from schemas.plans import Plan
from schemas.rejects import REJECTS

_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found: one line per fault, none for a sound run.

    `is_input_checked` is False where the input is gone or has changed since it was planned;
    then row keys were compared with the plan alone.
    """

    run_uri: str
    faults: tuple[str, ...]
    num_rows: int
    num_generations: int
    num_rejects: int
    num_parts: int
    num_bytes: int
    is_input_checked: bool


def audit(store: Store) -> AuditReport:
    """Return what is wrong with the sealed run in `store`; reads every byte of it.

    Row keys are compared only where all parts could be read: else the damaged part's rows
    would be told a second time, as if they were lost.

    Raises:
        VerificationError: there is no sealed run here to audit.
    """
    plan, manifest = written_plan(store), written_manifest(store)
    if plan is None or manifest is None:
        what = "no plan, so no run" if plan is None else "no manifest: the run is not finished"
        raise VerificationError(f"{store.uri} holds {what}")
    faults = list(_manifest_faults(store, plan, manifest))
    found: Counter[str] = Counter()
    parts = [(commit, part) for commit in manifest.commits for part in commit.parts]
    for commit, part in parts:
        table = _checked_part(store, commit, part, faults)
        if table is not None:
            found.update(table["row_key"].to_pylist())
    has_all_parts = not faults
    planned, plan_faults = _planned_keys(store, plan)
    faults += plan_faults
    if has_all_parts and not plan_faults:
        faults += _key_faults(found, planned, "the plan")
    input_keys = _input_keys(plan)
    if has_all_parts and input_keys is not None:
        faults += _key_faults(found, input_keys, "the input")
    faults += attempt_faults(read_attempts(store), manifest.commits)
    return AuditReport(
        run_uri=store.uri,
        faults=tuple(faults),
        num_rows=manifest.num_rows,
        num_generations=manifest.num_generations,
        num_rejects=manifest.num_rejects,
        num_parts=len(parts),
        num_bytes=sum(part.num_bytes for _, part in parts),
        is_input_checked=input_keys is not None,
    )


def _manifest_faults(store: Store, plan: Plan, manifest: Manifest) -> Iterator[str]:
    if sha256_hex(store.get(PLAN_KEY)) != manifest.plan_sha256:
        yield f"{PLAN_KEY}: not the plan that the manifest was made from"
    planned = [batch.batch_id for batch in plan.batches]
    sealed = [commit.batch_id for commit in manifest.commits]
    if planned != sealed:
        yield f"manifest.json: has {len(sealed)} batches, the plan {len(planned)}"
    try:
        lying = commits_of(store, sealed)
    except (FileNotFoundError, VerificationError) as error:
        yield f"commits/: {error}"
    else:
        for commit, fact in zip(manifest.commits, lying, strict=True):
            if commit != fact:
                yield f"commits/{fact.batch_id}.json: differs from the manifest"
    counts = (
        ("rows", manifest.num_rows, plan.num_rows),
        ("generations", manifest.num_generations, sum(c.num_generations for c in manifest.commits)),
        ("rejects", manifest.num_rejects, sum(c.num_rejects for c in manifest.commits)),
        ("rows in both", manifest.num_rows, manifest.num_generations + manifest.num_rejects),
    )
    yield from (f"manifest.json: {a} {what}, counted {b}" for what, a, b in counts if a != b)
    yield from _lineage_faults(store, manifest)


def _lineage_faults(store: Store, manifest: Manifest) -> Iterator[str]:
    try:
        table = read_own(store.get(LINEAGE_KEY), LINEAGE, key=LINEAGE_KEY)
    except FileNotFoundError:
        yield f"{LINEAGE_KEY}: absent; run again to rebuild it from the commits"
    except VerificationError as error:
        yield str(error)
    else:
        if table.to_pylist() != lineage_table(manifest).to_pylist():
            yield f"{LINEAGE_KEY}: differs from the commits"


def _checked_part(store: Store, commit: Commit, part: Part, faults: list[str]) -> pa.Table | None:
    """Return the part's table; note what is wrong with it."""
    try:
        content = store.get(part.key)
    except FileNotFoundError:
        faults.append(f"{part.key}: absent, named by the commit of {commit.batch_id}")
        return None
    if sha256_hex(content) != part.sha256:
        faults.append(f"{part.key}: bytes differ from those that were committed")
        return None
    schema = GENERATIONS if part.kind == "generations" else REJECTS
    try:
        table = read_own(content, schema, key=part.key)
    except VerificationError as error:
        faults.append(str(error))
        return None
    if table.num_rows != part.num_rows:
        faults.append(f"{part.key}: {table.num_rows} rows, its commit says {part.num_rows}")
    return table


def _planned_keys(store: Store, plan: Plan) -> tuple[Counter[str], list[str]]:
    keys: Counter[str] = Counter()
    try:
        for cut in read_batches(store, plan, plan.batches):
            keys.update(cut.rows["row_key"].to_pylist())
    except VerificationError as error:
        return keys, [str(error)]
    return keys, []


def _input_keys(plan: Plan) -> Counter[str] | None:
    """Return the row keys that the input has now, or None where it is not the planned one."""
    if not plan.files:
        return Counter()
    try:
        store, names = expand_input(plan.input_uri)
        present = set(names)
        keys: Counter[str] = Counter()
        seen: set[str] = set()
        for file in plan.files:
            if file.key not in present or store.fingerprint(file.key) != file.fingerprint:
                return None
            if file.fault is not None:
                keys[file.key] += 1
            else:
                with store.open_read(file.key) as source:
                    rows = ParquetInput(source)
                    usable = _Usable(seen, frozenset(each.key for each in plan.files))
                    keys.update(_file_keys(rows, file.key, plan.id_column, file.num_rows, usable))
    except (PromptmillError, UnreadableFileError, FileNotFoundError):
        return None
    return keys


@dataclass(frozen=True, slots=True)
class _Usable:
    """Which ids can be keys: given, not seen before, and not of the form of a position."""

    seen: set[str]
    files: frozenset[str]

    def take(self, given: object) -> bool:
        """Return whether this id is a key, and remember it."""
        if given in (None, NOT_TEXT, "") or is_position_key(str(given), self.files):
            return False
        is_new = str(given) not in self.seen
        self.seen.add(str(given))
        return is_new


def _file_keys(
    rows: ParquetInput, file: str, id_column: str | None, num_rows: int | None, usable: "_Usable"
) -> Iterator[str]:
    """Yield the first `num_rows` row keys: the id, or the position of a row without its own."""
    names = [] if id_column is None else [id_column]
    number = 0
    for batch in rows.batches(names):
        ids: Sequence[object] = [None] * batch.num_rows if id_column is None else values(batch[0])
        for given in ids:
            if number == num_rows:
                return
            yield str(given) if usable.take(given) else position_key(file, number)
            number += 1


def _key_faults(found: Counter[str], expected: Counter[str], where: str) -> Iterator[str]:
    """Yield one line each for keys that are missing, doubled, or not of this run."""
    lists = (
        (f"rows of {where} without an outcome", expected - found),
        (f"rows that {where} does not have as often", found - expected),
    )
    for what, keys in lists:
        if keys:
            named = ", ".join(sorted(keys)[:_MAX_NAMED])
            yield f"{keys.total()} {what}: {named}{', …' if len(keys) > _MAX_NAMED else ''}"
