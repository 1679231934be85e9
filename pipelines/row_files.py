"""Row files for people and other programs: Parquet, JSON Lines and CSV, on a local disk.

Knows how an Arrow value is written in each of them; knows nothing of runs.
"""

import base64
import csv
import json
import math
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from pipelines.tables import NOT_TEXT, parquet_writer, values
from schemas.errors import SettingsError
from schemas.names import nearest

Write = Callable[[pa.Table], None]
"""Adds rows at the end of a file that is being written."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters by which a spreadsheet takes a cell for a formula. Source: OWASP."""


@contextmanager
def row_file(path: Path, schema: pa.Schema) -> Generator[Write]:
    """Give a function that adds rows of `schema`; at the end of the block the file is there.

    It replaces what was at `path`, complete or not at all: until then it is a draft beside it.

    Raises:
        SettingsError: the name ends in no format that is known, or its folder is none.
    """
    suffix = path.suffix.lower()
    writers = {".parquet": _parquet, ".jsonl": _json_lines, ".csv": _csv}
    if suffix not in writers:
        known = [name.removeprefix(".") for name in writers]
        raise SettingsError(f"{path}: no format `{suffix[1:]}`{nearest(suffix[1:], known)}")
    if not path.parent.is_dir():
        raise SettingsError(f"{path}: {path.parent} is no folder; make it first")
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a file")
    draft = path.with_name(f".{path.name}.draft-{secrets.token_hex(8)}")
    draft.touch(mode=0o600)  # prompts and answers are their owner's, whatever the umask
    try:
        with writers[suffix](draft, schema) as write:
            yield write
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Generator[Write]:
    with pa.OSFile(str(path), "wb") as sink, parquet_writer(sink, schema) as writer:
        yield writer.write_table


@contextmanager
def _json_lines(path: Path, _schema: pa.Schema) -> Generator[Write]:
    """Write one object a row. Bytes are base64, times ISO 8601, NaN and infinities null."""
    with _text(path) as file:

        def write(table: pa.Table) -> None:
            columns = [list(map(_json_value, _column(one))) for one in table.columns]
            for row in zip(*columns, strict=True):
                named = dict(zip(table.column_names, row, strict=True))
                file.write(json.dumps(named, ensure_ascii=False) + "\n")

        yield write


@contextmanager
def _csv(path: Path, schema: pa.Schema) -> Generator[Write]:
    """Write a header and one line a row; lists and structs are JSON text, null is empty.

    A text that a spreadsheet would run as a formula gets a `'` before it; numbers do not.
    """
    with _text(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(map(_cell, schema.names))

        def write(table: pa.Table) -> None:
            columns = [list(map(_cell, _column(one))) for one in table.columns]
            rows.writerows(zip(*columns, strict=True))

        yield write


@contextmanager
def _text(path: Path) -> Generator[TextIO]:
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file


def _column(column: pa.ChunkedArray) -> list[object]:
    """Return the column's values; bytes in a text column that are no UTF-8 as U+FFFD."""
    found = [value for chunk in column.chunks for value in values(chunk)]
    if NOT_TEXT not in found:
        return found
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return [None if value is NOT_TEXT else value for value in found]
    given = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "replace") for value in given]


def _json_value(value: object) -> object:
    """Return the value as JSON has it; a map (which Arrow gives as pairs) becomes an object."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(inner, tuple) for inner in value):
            return {str(key): _json_value(inner) for key, inner in value}
        return [_json_value(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return value
    plain = _json_value(value)
    text = json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else str(plain)
    return f"'{text}" if text.startswith(_FORMULA) else text
