"""The answers to a job's questions as columns (wide) or as rows (long).

What lies on storage is one row per row of the input, with a list of answers; these are the two
forms in which it is read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from schemas.errors import SettingsError
from schemas.generations import ANSWERS, PROBABILITY
from schemas.plans import Plan

Form = Literal["wide", "long"]
"""`wide`: columns for each question; `long`: a row for each question."""

Columns = list[tuple[str, pa.Array | pa.ChunkedArray]]

_PAIRS = pa.list_(PROBABILITY)
_ANSWER = ANSWERS.value_type
_FIELDS = [_ANSWER.field(i).name for i in range(_ANSWER.num_fields)]
_OF_LABELS = ("probabilities", "margin")
_OF_TEXTS = ("finish_reason",)
_OF_ALL = ("num_prompt_tokens", "num_output_tokens")
_IN_WIDE = {"probabilities": "label_probabilities", "margin": "label_margin"}
_NOT_IN_WIDE = frozenset({"text", "stop_reason", "label", "label_probabilities", "label_margin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """How answers are laid out: `names` are the job's questions, `labels` those with choices."""

    form: Form
    names: tuple[str, ...]
    labels: frozenset[str]

    @property
    def num_rows(self) -> int:
        """Rows out for each row in."""
        return len(self.names) if self.form == "long" else 1

    def shaped(self, rows: pa.Table) -> pa.Table:
        """Return these rows in this form, in place of their column `answers`.

        Wide: `<question>` is the label or the text, beside it `<question>_probabilities`,
        `_margin` (with choices) or `_finish_reason` (without), `_num_prompt_tokens` and
        `_num_output_tokens`. Long: `question` and the fields of its answer. A question that was
        not answered has nulls in either form.
        """
        answers = rows["answers"].combine_chunks()
        places = _places(answers, self.names)
        values = answers.flatten()
        if self.form == "wide":
            dropped, ours = _NOT_IN_WIDE, self._wide(values, places)
            kept = rows
        else:
            dropped, ours = frozenset(_FIELDS), self._long(values, places)
            kept = repeated(rows, self.num_rows)
        columns: Columns = []
        for name in rows.column_names:
            if name == "answers":
                columns += ours
            elif name not in dropped:
                columns.append((name, kept[name]))
        return pa.table(dict(columns))

    def _wide(self, values: pa.Array, places: list[list[int | None]]) -> Columns:
        columns: Columns = []
        for name, of_question in zip(self.names, places, strict=True):
            fields = _fields(values, of_question)
            is_label = name in self.labels
            columns.append((name, fields["label" if is_label else "text"]))
            for suffix in (*(_OF_LABELS if is_label else _OF_TEXTS), *_OF_ALL):
                columns.append((f"{name}_{suffix}", fields[_IN_WIDE.get(suffix, suffix)]))
        return columns

    def _long(self, values: pa.Array, places: list[list[int | None]]) -> Columns:
        row_by_row = [place for of_row in zip(*places, strict=True) for place in of_row]
        fields = _fields(values, row_by_row)
        num_rows = len(row_by_row) // len(self.names)
        fields["question"] = pa.array([*self.names] * num_rows, pa.string())
        return list(fields.items())


def form_of(plan: Plan, form: Form) -> AnswerForm | None:
    """Return how the answers of this plan's run are laid out; None for a job without questions.

    Raises:
        SettingsError: rows for questions are asked for, and the job has none.
    """
    questions = json.loads(plan.job).get("questions") or ()
    if not questions and form == "long":
        raise SettingsError("the run's job has no questions: leave the long form out")
    if not questions:
        return None
    return AnswerForm(
        form=form,
        names=tuple(one["name"] for one in questions),
        labels=frozenset(one["name"] for one in questions if one["choices"] is not None),
    )


def repeated(rows: pa.Table, times: int) -> pa.Table:
    """Return the rows with each standing so many times, one after the other."""
    if times == 1:
        return rows
    return rows.take(pa.array([i for i in range(rows.num_rows) for _ in range(times)], pa.int64()))


def with_maps(rows: pa.Table) -> pa.Table:
    """Return the rows with probabilities as maps, which other programs know as such."""
    for place, field in enumerate(rows.schema):
        if field.type == _PAIRS:
            pairs = rows[field.name].combine_chunks()
            keys, shares = pairs.values.flatten()
            made = pa.MapArray.from_arrays(pairs.offsets, keys, shares, mask=pairs.is_null())
            rows = rows.set_column(place, field.name, made)
    return rows


def _places(answers: pa.Array, names: Sequence[str]) -> list[list[int | None]]:
    """Return for each question where its answer stands among all answers, for each row."""
    number = {name: i for i, name in enumerate(names)}
    lengths = answers.value_lengths().fill_null(0).to_pylist()
    asked = iter(enumerate(answers.flatten().field("question").to_pylist()))
    found: list[list[int | None]] = [[None] * len(lengths) for _ in names]
    for row, length in enumerate(lengths):
        for _ in range(length):
            place, name = next(asked)
            found[number[name]][row] = place
    return found


def _fields(values: pa.Array, places: Sequence[int | None]) -> dict[str, pa.Array]:
    """Return the fields of the answers at these places; null where there is none."""
    chosen = values.take(pa.array(places, pa.int64()))
    return dict(zip(_FIELDS, chosen.flatten(), strict=True))
