"""Export: a finished run's rows, as one lazy frame or beside the columns of its input."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from pipelines.answer_forms import AnswerForm, Form, form_of, repeated, with_maps
from pipelines.planned_input import PlannedInput
from pipelines.reading import parts, read_part, run_in, sealed
from pipelines.row_files import row_file
from pipelines.storage import Store
from pipelines.tables import MAX_READ_ROWS
from schemas.commits import Manifest
from schemas.errors import SettingsError
from schemas.generations import GENERATIONS, PROBABILITY
from schemas.plans import Plan

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
    return _scan(run, sealed(run)[1], None)


def answers(store: Store, form: Form = "long") -> pl.LazyFrame:
    """Return the current generations of a job with questions, with its answers in this form.

    One row per prompt and question (`long`), or columns for each question (`wide`); see
    `AnswerForm.shaped`. Rejects are not in it. Otherwise as `generations`.

    Raises:
        SettingsError: there is no run, or its job has no questions.
        VerificationError: the run is not finished.
    """
    run = run_in(store)
    plan, manifest = sealed(run)
    found = form_of(plan, form)
    if found is None:
        raise SettingsError(f"{run.uri}: the run's job has no questions; read its generations")
    return _scan(run, manifest, found)


def _scan(run: Store, manifest: Manifest, form: AnswerForm | None) -> pl.LazyFrame:
    filled = [part for part in parts(manifest, "generations") if part.num_rows]

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, at_most: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = at_most
        for part in filled:
            if left is not None and left <= 0:
                return
            frame = _frame(read_part(run, part), form).slice(0, left)
            left = None if left is None else left - frame.height
            chosen = frame if predicate is None else frame.filter(predicate)
            yield chosen if columns is None else chosen.select(columns)

    return register_io_source(read, schema=_frame(GENERATIONS.empty_table(), form).schema)


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


def _frame(table: pa.Table, form: AnswerForm | None) -> pl.DataFrame:
    """Return generations as a frame; their map as a list of pairs, which every polars knows."""
    name = "label_probabilities"
    pairs = table[name].cast(pa.large_list(PROBABILITY))
    rows = table.set_column(table.schema.get_field_index(name), name, pairs)
    return pl.DataFrame(rows if form is None else form.shaped(rows))


def export(
    store: Store, target: Path, *, with_input: bool = True, form: Form = "wide"
) -> ExportReport:
    """Write every input row of a run to `target` (.parquet, .jsonl, .csv), in input order.

    A row has the input's columns, `row_key` (the value of the id column, where there is one),
    and its generation or its reject code. A column of ours whose name the input has already
    gets `generation_` before it. Answers to the job's questions are columns (`wide`), or rows
    (`long`): as many for each row of the input as there are questions. The run's outcomes are
    held in memory, the input is streamed.
    The file is there complete, or not at all.

    Raises:
        SettingsError: no run, no such format, or the input is not what was planned: then
            `with_input=False` exports without it.
        VerificationError: the run is not finished, or a part is damaged.
    """
    run = run_in(store)
    plan, manifest = sealed(run)
    shape = form_of(plan, form)
    outcomes = _outcomes(run, plan, manifest, has_questions=shape is not None)
    _refuse_input(plan, target)
    source = PlannedInput(plan) if with_input else None
    given = pa.schema([]) if source is None else source.schema
    own = outcomes.drop_columns([*_PLACE])
    schema = pa.schema([*given, *_named(_shaped(own.slice(0, 0), shape), given.names).schema])
    with row_file(target, schema) as write:
        if source is None:
            for batch in own.to_batches(max_chunksize=MAX_READ_ROWS):
                write(_shaped(pa.Table.from_batches([batch]), shape).cast(schema))
        else:
            for start, columns in source.beside(outcomes):
                rows = _shaped(own.slice(start, columns.num_rows), shape)
                beside = repeated(columns, 1 if shape is None else shape.num_rows)
                joined = [*beside.columns, *rows.columns]
                write(pa.Table.from_arrays(joined, schema=schema))
    return ExportReport(
        path=str(target),
        num_rows=manifest.num_rows,
        num_generations=manifest.num_generations,
        num_rejects=manifest.num_rejects,
        columns=tuple(schema.names),
    )


def _shaped(rows: pa.Table, shape: AnswerForm | None) -> pa.Table:
    return rows if shape is None else with_maps(shape.shaped(rows))


def _outcomes(run: Store, plan: Plan, manifest: Manifest, *, has_questions: bool) -> pa.Table:
    """Return place and exported columns of all generations and rejects, in input order."""
    has_labels = json.loads(plan.job)["output"]["labels"] is not None
    asked = ("answers",) if has_questions else ()
    names = [*_PLACE, *_ANSWER, *(_LABEL if has_labels else ()), *asked]
    answered = [read_part(run, part).select(names) for part in parts(manifest, "generations")]
    refused = [
        read_part(run, part)
        .select([*_PLACE, *_REJECT, *asked])
        .rename_columns([*_PLACE, *_REJECT.values(), *asked])
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
