"""Plan: every row of the input in exactly one batch, written once; everyone follows it.

The plan holds the prompts' tokens, so what was planned is what is asked, whatever happens to
the input afterwards.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import polars as pl
import pyarrow as pa

from pipelines.chat import ChatTokenizer
from pipelines.ordering import (
    MAX_BATCH_ROWS,
    default_batch_tokens,
    num_prefix_tokens,
    num_tokens,
    ordered,
    with_batches,
    with_first_of_request,
    with_predictions,
    with_repeated_ids,
)
from pipelines.plan_parts import BatchRows, put_plan, write_parts
from pipelines.prediction import Prediction
from pipelines.row_prompts import TOKEN_COLUMNS, num_spared_tokens, prompt_lengths, without_prompts
from pipelines.spool import PREFIX_PROBE_TOKENS, Spool, spool_folder
from pipelines.storage import Store
from pipelines.tables import table_of
from pipelines.tokenize import Room, plan_rows
from schemas.ids import batch_id, position_key
from schemas.plans import PLAN_ROWS, InputFile, Plan, PlannedBatch, PlanRow
from schemas.prompts import Prompt
from schemas.requests import SamplingSettings
from schemas.runs import RunIdentity


def plan(
    events: Iterable[Prompt | InputFile],
    store: Store,
    identity: RunIdentity,
    chat: ChatTokenizer,
    *,
    room: Room,
    sampling: SamplingSettings,
    prediction: Prediction,
    max_batch_tokens: int | None = None,
    on_progress: Callable[[int], None] = lambda _num_rows: None,
) -> Plan:
    """Cut the rows of `events` into batches, write them, and return the run's plan.

    Another worker's plan for the same run, if it was written first, is the one returned.
    A crash before plan.json leaves parts that no plan names, nothing else.
    """
    started = time.monotonic()
    files: list[InputFile] = []
    with spool_folder() as folder:
        spool = Spool(folder, sampling)
        prompts = _without_files(events, files)
        for rows in plan_rows(prompts, chat, room, identity.profile_id):
            spool.append(rows)
            on_progress(rows.num_rows)
        cut = _Cut(spool, files, prediction, max_batch_tokens)
        parts, batches = write_parts(store, cut.batches())
    return put_plan(
        store,
        Plan(
            version=1,
            run_key=identity.run_key,
            profile_id=identity.profile_id,
            job=identity.job,
            partition=identity.partition,
            input_uri=identity.input_uri,
            id_column=identity.id_column,
            files=tuple(files),
            parts=parts,
            batches=batches,
            rejects_by_code=cut.rejects_by_code,
            num_shared_tokens=cut.num_shared_tokens,
            num_prefix_tokens=cut.num_prefix_tokens,
            prediction_basis=prediction.basis,
            output_lengths=prediction.lengths.to_text(),
            planned_s=time.monotonic() - started,
        ),
    )


def _without_files(
    events: Iterable[Prompt | InputFile], files: list[InputFile]
) -> Iterator[Prompt]:
    """Yield the prompts; collect the files in `files`, which is complete at the end."""
    for event in events:
        if isinstance(event, InputFile):
            files.append(event)
        else:
            yield event


class _Cut:
    """The spooled rows, cut into batches: first the rejects, then requests in feeding order."""

    def __init__(
        self,
        spool: Spool,
        files: list[InputFile],
        prediction: Prediction,
        max_batch_tokens: int | None,
    ) -> None:
        self._spool = spool
        self._files = files
        faulty = [number for number, file in enumerate(files) if file.fault is not None]
        index = with_repeated_ids(spool.index().filter(~pl.col("file_number").is_in(faulty)))
        is_reject = pl.col("is_reject") | pl.col("is_repeated")
        self._rejects = index.filter(is_reject)
        asked = with_first_of_request(index.filter(~is_reject))
        requests = with_predictions(asked.filter("is_first"), prediction)
        budget = max_batch_tokens or default_batch_tokens(num_tokens(requests))
        self._requests = ordered(requests, max_batch_tokens=budget)
        self._shared = with_batches(asked.filter(~pl.col("is_first")), self._requests)
        self.rejects_by_code: dict[str, int] = {}
        self.num_shared_tokens = int(self._shared["num_prompt_tokens"].cast(pl.Int64).sum())
        self.num_prefix_tokens = num_prefix_tokens(self._requests, PREFIX_PROBE_TOKENS)

    def batches(self) -> Iterator[BatchRows]:
        """Yield the batches; a run without any row has one batch of no rows."""
        number = 0
        for rows in self._reject_rows():
            self._count(rows)
            yield _cut_batch(number, PLAN_ROWS.empty_table(), PLAN_ROWS.empty_table(), rows)
            number += 1
        shared = self._shared.partition_by("batch", as_dict=True)
        for key, frame in self._requests.partition_by(
            "batch", as_dict=True, maintain_order=True
        ).items():
            requests = self._take(frame)
            for name in ("prefix_group", "predicted_output_tokens"):
                requests = _replaced(requests, name, frame[name].to_arrow())
            fanned = self._take(shared[key]) if key in shared else PLAN_ROWS.empty_table()
            self.num_prefix_tokens += num_spared_tokens(requests)
            yield _cut_batch(number, requests, without_prompts(fanned), [])
            number += 1
        if number == 0:
            empty = PLAN_ROWS.empty_table()
            yield _cut_batch(number, empty, empty, [])

    def _take(self, frame: pl.DataFrame) -> pa.Table:
        return self._spool.take(frame)

    def _count(self, rows: list[PlanRow]) -> None:
        for row in rows:
            code = str(row.reject_code)
            self.rejects_by_code[code] = self.rejects_by_code.get(code, 0) + 1

    def _reject_rows(self) -> Iterator[list[PlanRow]]:
        """Yield rejects in input order, at most `MAX_BATCH_ROWS` at a time; files come first."""
        unreadable = [
            _file_reject(number, file) for number, file in enumerate(self._files) if file.fault
        ]
        for start in range(0, len(unreadable), MAX_BATCH_ROWS):
            yield unreadable[start : start + MAX_BATCH_ROWS]
        for frame in self._rejects.iter_slices(MAX_BATCH_ROWS):
            columns = self._take(frame).drop([*TOKEN_COLUMNS]).to_pylist()
            yield [
                self._reject(row, is_repeated=is_repeated)
                for row, is_repeated in zip(columns, frame["is_repeated"], strict=True)
            ]

    def _reject(self, row: dict[str, object], *, is_repeated: bool) -> PlanRow:
        kept = PlanRow(**row, **dict.fromkeys(TOKEN_COLUMNS))  # pyright: ignore[reportArgumentType]
        if is_repeated:
            key = position_key(self._files[kept.file_number].key, kept.row or 0)
            message = f"the id {kept.row_key[:80]!r} stands in an earlier row"
            kept = replace(
                kept,
                row_key=key,
                reject_code="DUPLICATE_ID",
                reject_stage="plan",
                reject_message=message,
            )
        return replace(
            kept,
            request_digest=None,
            num_prompt_tokens=0,
            predicted_output_tokens=0,
            max_output_tokens=0,
        )


def _file_reject(number: int, file: InputFile) -> PlanRow:
    return PlanRow(
        row_key=file.key,
        file_number=number,
        row=None,
        request_digest=None,
        prompt_token_ids=None,
        question_token_ids=None,
        num_prompt_tokens=0,
        predicted_output_tokens=0,
        max_output_tokens=0,
        num_truncated_tokens=0,
        prefix_group=0,
        max_tokens=None,
        temperature=None,
        seed=None,
        reject_code="FILE_UNREADABLE",
        reject_stage="ingest",
        reject_message=file.fault,
    )


def _cut_batch(
    number: int, requests: pa.Table, shared: pa.Table, rejects: list[PlanRow]
) -> BatchRows:
    rows = pa.concat_tables([requests, shared, table_of(rejects, PLAN_ROWS)])
    batch = PlannedBatch(
        batch_id=batch_id(number),
        part=0,
        row_group=0,
        num_rows=rows.num_rows,
        num_requests=requests.num_rows,
        num_shared=shared.num_rows,
        num_rejects=len(rejects),
        num_prompt_tokens=_sum(requests["num_prompt_tokens"]),
        predicted_output_tokens=_sum(requests["predicted_output_tokens"]),
        max_output_tokens=_sum(requests["max_output_tokens"]),
        longest_tokens=_longest_tokens(requests),
    )
    return BatchRows(batch=batch, rows=rows)


def _sum(column: pa.ChunkedArray) -> int:
    return sum(column.to_pylist())


def _longest_tokens(requests: pa.Table) -> int | None:
    """Return the most that one prompt of a request may take together with its output."""
    pairs = zip(prompt_lengths(requests), requests["max_output_tokens"].to_pylist(), strict=True)
    return max((max(lengths) + output for lengths, output in pairs), default=None)


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    field = PLAN_ROWS.field(name)
    return table.set_column(PLAN_ROWS.get_field_index(name), field, column.cast(field.type))
