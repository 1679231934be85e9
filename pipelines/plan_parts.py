"""A plan on storage: its parts, one row group a batch, and plan.json, put once."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import Store
from pipelines.tables import own_file, parquet_writer
from schemas.commits import from_json, to_json
from schemas.errors import VerificationError
from schemas.ids import sha256_hex
from schemas.plans import PLAN_ROWS, Plan, PlannedBatch, PlanPart

PLAN_KEY = "plan/plan.json"
MAX_PART_BYTES = 64 * 1024 * 1024


def written_plan(store: Store) -> Plan | None:
    """Return the plan that this run follows, or None where none is written yet."""
    try:
        content = store.get(PLAN_KEY)
    except FileNotFoundError:
        return None
    return from_json(Plan, content, key=PLAN_KEY)


def put_plan(store: Store, plan: Plan) -> Plan:
    """Make `plan` the run's plan, or return the one that was there first.

    A loser's parts are deleted unless the winner's plan names the same ones.
    """
    if store.put_once(PLAN_KEY, to_json(plan)):
        return plan
    winner = from_json(Plan, store.get(PLAN_KEY), key=PLAN_KEY)
    kept = {part.key for part in winner.parts}
    for part in plan.parts:
        if part.key not in kept:
            store.delete(part.key)
    return winner


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """A batch that was cut, with its rows in feeding order: requests, then shared rows."""

    batch: PlannedBatch
    rows: pa.Table


def write_parts(
    store: Store, batches: Iterable[BatchRows]
) -> tuple[tuple[PlanPart, ...], tuple[PlannedBatch, ...]]:
    """Put these batches as parts; one is compressed while the next is made."""
    writer = PartWriter(store)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan parts") as worker:
        written = worker.submit(lambda: None)
        for batch in batches:
            written.result()
            written = worker.submit(writer.write, batch)
        written.result()
    return writer.close()


class PartWriter:
    """Writes batches as row groups of parts; each part is complete before it is put."""

    def __init__(self, store: Store) -> None:
        """Put parts below `store`."""
        self._store = store
        self._parts: list[PlanPart] = []
        self._batches: list[PlannedBatch] = []
        self._open: tuple[pa.BufferOutputStream, pq.ParquetWriter] | None = None
        self._row_group = 0

    def write(self, cut: BatchRows) -> None:
        """Add a batch as the next row group."""
        if self._open is None:
            sink = pa.BufferOutputStream()
            self._open, self._row_group = (sink, _writer(sink)), 0
        sink, writer = self._open
        place = replace(cut.batch, part=len(self._parts), row_group=self._row_group)
        writer.write_table(cut.rows, row_group_size=max(1, cut.rows.num_rows))
        self._row_group += 1
        self._batches.append(place)
        if sink.tell() >= MAX_PART_BYTES:
            self._put()

    def close(self) -> tuple[tuple[PlanPart, ...], tuple[PlannedBatch, ...]]:
        """Put what is open and return all parts and batches."""
        self._put()
        return tuple(self._parts), tuple(self._batches)

    def _put(self) -> None:
        if self._open is None:
            return
        sink, writer = self._open
        writer.close()
        content = sink.getvalue().to_pybytes()
        sha256 = sha256_hex(content)
        key = f"plan/index-{len(self._parts):05d}-{sha256[:12]}.parquet"
        self._store.put(key, content)
        self._parts.append(PlanPart(key=key, num_bytes=len(content), sha256=sha256))
        self._open = None


def _writer(sink: pa.BufferOutputStream) -> pq.ParquetWriter:
    columns = ["prompt_token_ids.list.element", "question_token_ids.list.element.list.element"]
    return parquet_writer(sink, PLAN_ROWS, token_columns=columns)


def read_batches(store: Store, plan: Plan, batches: Iterable[PlannedBatch]) -> Iterator[BatchRows]:
    """Yield these batches with their rows; each part is read once and checked.

    Raises:
        VerificationError: a part is absent or its bytes are not those that were planned.
    """
    for part_number, group in groupby(batches, key=lambda batch: batch.part):
        file = _opened(store, plan.parts[part_number])
        for batch in group:
            if batch.num_rows == 0:
                yield BatchRows(batch=batch, rows=PLAN_ROWS.empty_table())
            else:
                yield BatchRows(
                    batch=batch, rows=file.read_row_group(batch.row_group, use_threads=False)
                )


def _opened(store: Store, part: PlanPart) -> pq.ParquetFile:
    try:
        content = store.get(part.key)
    except FileNotFoundError:
        raise VerificationError(f"{part.key}: named by the plan, and absent") from None
    if sha256_hex(content) != part.sha256:
        raise VerificationError(f"{part.key}: bytes differ from those that were planned")
    return own_file(content)
