"""Export: a finished run's rows, as one lazy frame or beside the columns of its input."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from pipelines.reading import parts, read_part, run_in, sealed
from pipelines.row_files import row_file
from pipelines.storage import Store, expand_input
from pipelines.tables import ParquetInput, UnreadableFileError
from schemas.commits import Manifest
from schemas.errors import SettingsError, VerificationError
from schemas.generations import GENERATIONS
from schemas.plans import InputFile, Plan

_PLACE = ("file", "row")
_ANSWER = ("row_key", "text", "finish_reason", "num_prompt_tokens", "num_output_tokens")
_LABEL = ("label", "label_probabilities", "label_margin")
_REJECT = {"row_key": "row_key", "code": "reject_code", "message": "reject_message"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported: one row per input row, each with a generation or a reject code."""

    path: str
    num_rows: int
    num_generations: int
    num_rejects: int
    columns: tuple[str, ...]


def generations(store: Store) -> pl.LazyFrame:
    """Return the current generations, one row per prompt that was answered, as a lazy frame.

    `store` is an output or a run. Parts are read when the frame is collected, one at a time,
    and checked against their hashes. The columns are those of `GENERATIONS`, with
    `label_probabilities` as a list of {key, value}.

    Raises:
        SettingsError: there is no run.
        VerificationError: the run is not finished. A damaged part is told when the frame is
            collected, by an error of polars that quotes it.
    """
    run = run_in(store)
    filled = [part for part in parts(sealed(run)[1], "generations") if part.num_rows]

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, at_most: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = at_most
        for part in filled:
            if left is not None and left <= 0:
                return
            frame = _frame(read_part(run, part).slice(0, left))
            left = None if left is None else left - frame.height
            chosen = frame if predicate is None else frame.filter(predicate)
            yield chosen if columns is None else chosen.select(columns)

    return register_io_source(read, schema=_frame(GENERATIONS.empty_table()).schema)


def samples(store: Store, count: int) -> list[tuple[str, str]]:
    """Return row key and text of up to `count` generations, from evenly spaced places of a run.

    A run's first rows are its longest prompts, so its head would not be like the rest.
    Reads at most `count` parts; raises what `generations` does.
    """
    run = run_in(store)
    filled = [part for part in parts(sealed(run)[1], "generations") if part.num_rows]
    num_rows = sum(part.num_rows for part in filled)
    chosen: list[tuple[str, str]] = []
    for number in sorted({(2 * k + 1) * num_rows // (2 * count) for k in range(count)}):
        before = 0
        for part in filled:
            if before <= number < before + part.num_rows:
                row = read_part(run, part).slice(number - before, 1).to_pylist()[0]
                chosen.append((row["row_key"], row["text"]))
            before += part.num_rows
    return chosen


def _frame(table: pa.Table) -> pl.DataFrame:
    """Return generations as a frame; their map as a list of pairs, which every polars knows."""
    name = "label_probabilities"
    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.float64())])
    pairs = table[name].cast(pa.large_list(pair))
    return pl.DataFrame(table.set_column(table.schema.get_field_index(name), name, pairs))


def export(store: Store, target: Path, *, with_input: bool = True) -> ExportReport:
    """Write every input row of a run to `target` (.parquet, .jsonl, .csv), in input order.

    A row has the input's columns, `row_key` (the value of the id column, where there is one),
    and its generation or its reject code. A column of ours whose name the input has already
    gets `generation_` before it. The run's outcomes are held in memory, the input is streamed.
    The file is there complete, or not at all.

    Raises:
        SettingsError: no run, no such format, or the input is not what was planned: then
            `with_input=False` exports without it.
        VerificationError: the run is not finished, or a part is damaged.
    """
    run = run_in(store)
    plan, manifest = sealed(run)
    outcomes = _outcomes(run, plan, manifest)
    _refuse_input(plan, target)
    source = _PlannedInput(plan) if with_input else None
    given = pa.schema([]) if source is None else source.schema
    own = _named(outcomes.drop_columns([*_PLACE]), given.names)
    schema = pa.schema([*given, *own.schema])
    with row_file(target, schema) as write:
        if source is None:
            write(own)
        else:
            for start, columns in source.beside(outcomes):
                rows = own.slice(start, columns.num_rows)
                joined = [*columns.columns, *rows.columns]
                write(pa.Table.from_arrays(joined, schema=schema))
    return ExportReport(
        path=str(target),
        num_rows=manifest.num_rows,
        num_generations=manifest.num_generations,
        num_rejects=manifest.num_rejects,
        columns=tuple(schema.names),
    )


def _outcomes(run: Store, plan: Plan, manifest: Manifest) -> pa.Table:
    """Return place and exported columns of all generations and rejects, in input order."""
    has_labels = json.loads(plan.job)["output"]["labels"] is not None
    names = [*_PLACE, *_ANSWER, *(_LABEL if has_labels else ())]
    answered = [read_part(run, part).select(names) for part in parts(manifest, "generations")]
    refused = [
        read_part(run, part)
        .select([*_PLACE, *_REJECT])
        .rename_columns([*_PLACE, *_REJECT.values()])
        for part in parts(manifest, "rejects")
    ]
    nullable = [_nullable(table) for table in [*answered, *refused]]
    both = pa.concat_tables(nullable, promote_options="default").combine_chunks()
    order = {file.key: number for number, file in enumerate(plan.files)}
    numbers = pa.array([order[key] for key in both["file"].to_pylist()], type=pa.int32())
    placed = both.append_column("number", numbers)
    return placed.sort_by([("number", "ascending"), ("row", "ascending")]).drop_columns("number")


def _nullable(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([field.with_nullable(nullable=True) for field in table.schema]))


def _named(own: pa.Table, taken: list[str]) -> pa.Table:
    """Return the table with names that are not taken."""
    names: list[str] = []
    for name in own.column_names:
        free = name
        while free in taken:
            free = f"generation_{free}"
        names.append(free)
    return own.rename_columns(names)


def _refuse_input(plan: Plan, target: Path) -> None:
    """Refuse to write over a file that the run was made from."""
    root = Path(plan.input_uri)
    inputs = {root, *(root / file.key for file in plan.files)}
    inputs |= {root.parent / file.key for file in plan.files}
    if target.resolve() in {path.resolve() for path in inputs}:
        raise SettingsError(f"{target} is an input of this run; export to another file")


class _PlannedInput:
    """The input files of a plan, as they were when it was made."""

    def __init__(self, plan: Plan) -> None:
        """Find the files and the columns that they have together.

        Raises:
            SettingsError: one is gone or has changed, or their columns do not fit together.
        """
        self._files = plan.files
        if not plan.files:
            self.schema = pa.schema([])
            return
        self._store, names = expand_input(plan.input_uri)
        present = set(names)
        for file in plan.files:
            if file.key not in present or self._store.fingerprint(file.key) != file.fingerprint:
                what = "has changed since" if file.key in present else "is gone, it was there when"
                raise SettingsError(
                    f"{plan.input_uri}: {file.key} {what} the run was planned\n"
                    "  run the job again, or export without the input's columns: --without-input"
                )
        self.schema = self._common_schema()

    def _common_schema(self) -> pa.Schema:
        found: list[pa.Schema] = []
        for file in self._files:
            if file.fault is None:
                with self._store.open_read(file.key) as source:
                    schema = ParquetInput(source).schema
                twice = {name for name in schema.names if schema.names.count(name) > 1}
                if twice:
                    raise SettingsError(f"{file.key} has more than one column {sorted(twice)}")
                found.append(schema.remove_metadata())
        try:
            common = pa.unify_schemas(found, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SettingsError(f"the columns of the input files do not fit: {error}") from error
        return pa.schema([field.with_nullable(nullable=True) for field in common])

    def beside(self, outcomes: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the input's rows, a few thousand at a time, each with the place of its first.

        Raises:
            VerificationError: the outcomes are not those of these rows.
        """
        start = 0
        for file in self._files:
            first = start
            for rows in self._rows(file):
                here = outcomes.slice(start, rows.num_rows)
                numbers = list(range(start - first, start - first + rows.num_rows))
                expected = [None] if file.fault is not None else numbers
                if here["row"].to_pylist() != expected or set(here["file"].to_pylist()) != {
                    file.key
                }:
                    raise VerificationError(f"{file.key}: outcomes are not those of its rows")
                yield start, rows
                start += rows.num_rows

    def _rows(self, file: InputFile) -> Iterator[pa.Table]:
        """Yield the planned rows of a file; one row of nulls for a file that was unreadable."""
        if file.fault is not None:
            yield pa.Table.from_arrays(
                [pa.nulls(1, field.type) for field in self.schema], schema=self.schema
            )
            return
        left = file.num_rows or 0
        try:
            with self._store.open_read(file.key) as source:
                opened = ParquetInput(source)
                for batch in opened.batches(opened.schema.names):
                    if left <= 0:
                        return
                    yield self._fitted(batch.slice(0, left))
                    left -= batch.num_rows
        except UnreadableFileError as error:
            raise SettingsError(
                f"{file.key}: a column that the job does not use cannot be read: {error}\n"
                "  export without the input's columns: --without-input"
            ) from error

    def _fitted(self, batch: pa.RecordBatch) -> pa.Table:
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)
