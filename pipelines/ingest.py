"""Ingest: the input's rows, streamed as prompts; what cannot be one is a fault with a code.

Reads only the columns that the job names, a few thousand rows at a time.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.sources import Source, shortener, source_of
from pipelines.storage import Store, expand_input
from pipelines.tables import NOT_TEXT, ParquetInput, UnreadableFileError, values
from schemas.errors import SettingsError
from schemas.ids import is_position_key, position_key
from schemas.job_spec import JobSpec
from schemas.names import nearest
from schemas.plans import InputFile
from schemas.prompts import Fault, Prompt

_MAX_FOOTERS = 256
"""Opening more files only to count their rows is work by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """The input's files as they are now: where, their keys in order, and their fingerprints."""

    uri: str
    store: Store
    keys: tuple[str, ...]
    fingerprints: tuple[str, ...]


def find_input(uri: str) -> InputFiles:
    """Return the Parquet files that `uri` names (a file, a folder, a glob), sorted by key.

    Raises:
        SettingsError: there is none; the message tells what lies there.
    """
    store, keys = expand_input(uri)
    prints = tuple(store.fingerprint(key) for key in keys)
    return InputFiles(uri=uri, store=store, keys=tuple(keys), fingerprints=prints)


def count_rows(files: InputFiles, limit: int | None) -> int | None:
    """Return how many rows there are to read, by the files' footers.

    None where there are so many files that opening each of them is work by itself. A file
    whose footer cannot be read counts for none.
    """
    if len(files.keys) > _MAX_FOOTERS:
        return None
    num_rows = 0
    for key in files.keys:
        try:
            with files.store.open_read(key) as source:
                num_rows += ParquetInput(source).num_rows
        except (UnreadableFileError, FileNotFoundError):
            continue
    return num_rows if limit is None else min(limit, num_rows)


def ingest(
    files: InputFiles, job: JobSpec, *, limit: int | None = None
) -> Iterator[Prompt | InputFile]:
    """Yield every row of the input once, in order, and each file after its rows.

    A damaged file has a fault, also when some of its rows were yielded before: then none of
    them counts. Ends after `limit` rows.

    Raises:
        SettingsError: a file lacks a column that the job names, an id is neither text nor a
            whole number, or a file was replaced while it was read.
    """
    reader = _Reader(job, frozenset(files.keys))
    left = math.inf if limit is None else limit
    for number, (key, fingerprint) in enumerate(zip(files.keys, files.fingerprints, strict=True)):
        if left <= 0:
            return
        num_rows, fault = 0, None
        try:
            with files.store.open_read(key) as source:
                for prompt in reader.prompts(ParquetInput(source), number, key):
                    yield prompt
                    num_rows += 1
                    if num_rows >= left:
                        break
        except UnreadableFileError as error:
            fault = str(error)
        _check_unchanged(files, key, fingerprint)
        left -= num_rows
        known_rows = None if fault else num_rows
        yield InputFile(key=key, fingerprint=fingerprint, num_rows=known_rows, fault=fault)


def _check_unchanged(files: InputFiles, key: str, fingerprint: str) -> None:
    """Refuse a file that is not the one whose fingerprint is part of the run's identity."""
    try:
        now = files.store.fingerprint(key)
    except FileNotFoundError:
        now = None
    if now != fingerprint:
        what = "was deleted" if now is None else "was replaced"
        raise SettingsError(f"{files.uri}: {key} {what} while it was read; run again")


class _Reader:
    """Turns a file's record batches into prompts, as one job asks for it."""

    def __init__(self, job: JobSpec, file_keys: frozenset[str]) -> None:
        self._file_keys = file_keys
        self._source: Source = source_of(job.prompt, [question.text for question in job.questions])
        self._may_cut = job.prompt.on_too_long == "truncate"
        self._id_column = job.input.id_column
        override = job.sampling.columns
        self._overrides = {
            setting: column
            for setting, column in (
                ("max_tokens", override.max_tokens),
                ("temperature", override.temperature),
                ("seed", override.seed),
            )
            if column is not None
        }

    def prompts(self, file: ParquetInput, file_number: int, key: str) -> Iterator[Prompt]:
        """Yield the file's rows as prompts."""
        names = list(dict.fromkeys([*self._source.columns, *self._overrides.values()]))
        if self._id_column is not None:
            names = list(dict.fromkeys([self._id_column, *names]))
        _check_columns(names, file.schema, key, self._id_column)
        self._source.check(file.schema.names, key)
        row_number = 0
        for batch in file.batches(names):
            columns = [values(batch.column(name)) for name in names]
            for row_values in zip(*columns, strict=True):
                row = dict(zip(names, row_values, strict=True))
                yield self._prompt(row, file_number, key, row_number)
                row_number += 1

    def _prompt(self, row: dict[str, object], file_number: int, file: str, number: int) -> Prompt:
        key = position_key(file, number)
        if self._id_column is not None:
            given = row[self._id_column]
            if given is None or given is NOT_TEXT or given == "":
                kind = "null" if given is None else "empty" if given == "" else "not valid UTF-8"
                fault = Fault("NULL_ID", f"`{self._id_column}` is {kind}")
                return Prompt(row_key=key, file_number=file_number, row=number, fault=fault)
            key = str(given)
            if is_position_key(key, self._file_keys):
                fault = Fault("DUPLICATE_ID", "the id has the form of a row's position, file#row")
                key = position_key(file, number)
                return Prompt(row_key=key, file_number=file_number, row=number, fault=fault)
        settings = _row_settings(row, self._overrides) if self._overrides else _JOBS_OWN
        if isinstance(settings, Fault):
            return Prompt(row_key=key, file_number=file_number, row=number, fault=settings)
        found = self._source.conversations(row)
        if isinstance(found, Fault):
            return Prompt(row_key=key, file_number=file_number, row=number, fault=found)
        return Prompt(
            row_key=key,
            file_number=file_number,
            row=number,
            conversations=found,
            max_tokens=settings[0],
            temperature=settings[1],
            seed=settings[2],
            shorten=shortener(self._source, row) if self._may_cut else None,
        )


def _check_columns(
    names: Sequence[str], schema: pa.Schema, key: str, id_column: str | None
) -> None:
    for name in names:
        if schema.names.count(name) != 1:
            if name in schema.names:
                raise SettingsError(f"{key} has more than one column `{name}`")
            raise SettingsError(f"{key} has no column `{name}`{nearest(name, schema.names)}")
    if id_column is None:
        return
    kind = schema.field(id_column).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if not (is_text or pa.types.is_string_view(kind) or pa.types.is_integer(kind)):
        raise SettingsError(
            f"{key}: id column `{id_column}` is {kind}; an id is text or a whole number"
        )


_Settings = tuple[int | None, float | None, int | None]
_JOBS_OWN: _Settings = (None, None, None)


def _row_settings(row: dict[str, object], columns: dict[str, str]) -> _Settings | Fault:
    """Return the row's own max_tokens, temperature and seed, or BAD_SAMPLING."""
    found: dict[str, int | float | None] = {}
    for setting, column in columns.items():
        value = row[column]
        is_fitting = value is None or _fits(setting, value)
        if not is_fitting:
            return Fault("BAD_SAMPLING", f"`{column}` is no {setting}: {_shown(value)}")
        found[setting] = None if value is None else value  # type: ignore[assignment]
    tokens, temperature, seed = (found.get(name) for name in ("max_tokens", "temperature", "seed"))
    return (
        None if tokens is None else int(tokens),
        None if temperature is None else float(temperature),
        None if seed is None else int(seed),
    )


def _fits(setting: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if setting == "temperature":
        return 0.0 <= value <= 2.0
    if value != value or value in (math.inf, -math.inf) or value != int(value):
        return False
    return 1 <= value < 2**31 if setting == "max_tokens" else 0 <= value < 2**63


def _shown(value: object) -> str:
    return str(value)[:40] if isinstance(value, int | float) else type(value).__name__
