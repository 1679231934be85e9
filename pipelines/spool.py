"""Tokenized rows on local disk while a plan is made, and what is needed to order them in memory.

Rows lie in Arrow files that are mapped, not loaded; in memory stay about 60 bytes for each.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import polars as pl
import pyarrow as pa

from pipelines.tables import table_of, take_across
from schemas.errors import TryElsewhereError
from schemas.plans import PLAN_ROWS, PlanRow
from schemas.requests import SamplingSettings

CHUNK_ROWS = 16384
PREFIX_PROBE_TOKENS = 96
"""Prompts that agree in so many first tokens (three cache blocks of 32) share a prefix group."""

INDEX = {
    "chunk": pl.UInt32,
    "place": pl.UInt32,
    "file_number": pl.Int32,
    "key_a": pl.UInt64,
    "key_b": pl.UInt64,
    "digest_a": pl.UInt64,
    "digest_b": pl.UInt64,
    "num_prompt_tokens": pl.Int32,
    "max_output_tokens": pl.Int32,
    "prefix": pl.UInt64,
    "is_reject": pl.Boolean,
    "is_shareable": pl.Boolean,
}


class Spool:
    """Plan rows in the order in which they came; append, then take in any order."""

    def __init__(self, folder: Path, sampling: SamplingSettings) -> None:
        """Keep chunks in `folder`, which the caller removes; `sampling` is the job's own."""
        self._folder = folder
        self._sampling = sampling
        self._waiting: list[PlanRow] = []
        self._paths: list[Path] = []
        self._frames: list[pl.DataFrame] = []
        self._chunks: list[pa.RecordBatch] | None = None

    def append(self, rows: Sequence[PlanRow]) -> None:
        """Add rows behind those that are there."""
        self._waiting += rows
        while len(self._waiting) >= CHUNK_ROWS:
            self._write(self._waiting[:CHUNK_ROWS])
            del self._waiting[:CHUNK_ROWS]

    def index(self) -> pl.DataFrame:
        """Return the columns of `INDEX` for all rows, in the order in which they came."""
        if self._waiting:
            self._write(self._waiting)
            self._waiting = []
        frames = [pl.DataFrame(schema=INDEX), *self._frames]
        self._frames = []
        return pl.concat(frames).with_row_index("number")

    def take(self, places: Sequence[tuple[int, int]]) -> pa.Table:
        """Return the rows at these (chunk, place) places, in the order asked for."""
        if not places:
            return PLAN_ROWS.empty_table()
        if self._chunks is None:
            self._chunks = [_mapped(path) for path in self._paths]
        return take_across(self._chunks, places)

    def _write(self, rows: Sequence[PlanRow]) -> None:
        number = len(self._paths)
        path = self._folder / f"{number:06d}.arrow"
        table = table_of(rows, PLAN_ROWS).combine_chunks()
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, PLAN_ROWS) as writer:
                writer.write_table(table)
        except OSError as error:
            raise TryElsewhereError(f"{path}: no room to plan in ({error}); set TMPDIR") from error
        self._paths.append(path)
        self._frames.append(_frame(rows, number, self._sampling))


def _mapped(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def _frame(rows: Sequence[PlanRow], chunk: int, sampling: SamplingSettings) -> pl.DataFrame:
    keys = [_pair(blake2b(row.row_key.encode(), digest_size=16).digest()) for row in rows]
    digests = [_pair(row.request_digest) if row.request_digest else (None, None) for row in rows]
    columns = {
        "chunk": [chunk] * len(rows),
        "place": list(range(len(rows))),
        "file_number": [row.file_number for row in rows],
        "key_a": [key[0] for key in keys],
        "key_b": [key[1] for key in keys],
        "digest_a": [digest[0] for digest in digests],
        "digest_b": [digest[1] for digest in digests],
        "num_prompt_tokens": [row.num_prompt_tokens for row in rows],
        "max_output_tokens": [row.max_output_tokens for row in rows],
        "prefix": [_prefix(row) for row in rows],
        "is_reject": [row.reject_code is not None for row in rows],
        "is_shareable": [_is_shareable(row, sampling) for row in rows],
    }
    return pl.DataFrame(columns, schema=INDEX)


def _pair(digest: bytes) -> tuple[int, int]:
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def _is_shareable(row: PlanRow, sampling: SamplingSettings) -> bool:
    """Whether the same request is meant to get the same answer: greedy, or a fixed seed."""
    temperature = sampling.temperature if row.temperature is None else row.temperature
    return temperature == 0.0 or row.seed is not None or sampling.seed is not None


def _prefix(row: PlanRow) -> int:
    tokens = (row.prompt_token_ids or ())[:PREFIX_PROBE_TOKENS]
    if row.question_token_ids and len(tokens) < PREFIX_PROBE_TOKENS:
        tokens = (tokens + row.question_token_ids[0])[:PREFIX_PROBE_TOKENS]
    return hash(tokens) & 0xFFFF_FFFF_FFFF_FFFF
