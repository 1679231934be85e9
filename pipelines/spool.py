"""Tokenized rows on local disk while a plan is made, and what is needed to order them in memory.

Rows lie in Arrow files that are mapped, not loaded; in memory stay about 60 bytes for each.
"""

import fcntl
import shutil
import tempfile
import time
from array import array
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.tables import take_across
from schemas.errors import TryElsewhereError
from schemas.plans import PLAN_ROWS
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


_FOLDER_PREFIX = "promptmill-plan-"
_LOCK = "lock"
_MIN_AGE_S = 60.0


@contextmanager
def spool_folder() -> Generator[Path]:
    """Give an empty folder of local disk, which is gone afterwards.

    One that a killed process left behind is removed here: its owner's lock has ended with it.
    """
    _sweep(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX) as name,
        (Path(name) / _LOCK).open("wb") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def _sweep(parent: Path) -> None:
    """Remove spool folders whose owner is dead; those that are not ours to open stay."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
        try:
            with (folder / _LOCK).open("rb") as lock:
                if time.time() - (folder / _LOCK).stat().st_mtime < _MIN_AGE_S:
                    continue  # its owner may be about to lock it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # locked by its owner, another user's, or just being made
            continue


class Spool:
    """Plan rows in the order in which they came; append, then take in any order."""

    def __init__(self, folder: Path, sampling: SamplingSettings) -> None:
        """Keep chunks in `folder`, which the caller removes; `sampling` is the job's own."""
        self._folder = folder
        self._sampling = sampling
        self._waiting: list[pa.RecordBatch] = []
        self._num_waiting = 0
        self._paths: list[Path] = []
        self._frames: list[pl.DataFrame] = []
        self._chunks: list[pa.RecordBatch] | None = None

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows of `PLAN_ROWS` behind those that are there."""
        self._waiting.append(rows)
        self._num_waiting += rows.num_rows
        if self._num_waiting >= CHUNK_ROWS:
            self._write()

    def index(self) -> pl.DataFrame:
        """Return the columns of `INDEX` for all rows, in the order in which they came."""
        if self._waiting:
            self._write()
        frames = [pl.DataFrame(schema=INDEX), *self._frames]
        self._frames = []
        return pl.concat(frames).with_row_index("number")

    def take(self, places: pl.DataFrame) -> pa.Table:
        """Return the rows at these places (`chunk`, `place`), in the order asked for."""
        if places.is_empty():
            return PLAN_ROWS.empty_table()
        if self._chunks is None:
            self._chunks = [_mapped(path) for path in self._paths]
        return take_across(self._chunks, places["chunk"].to_numpy(), places["place"].to_numpy())

    def _write(self) -> None:
        """Write the waiting rows as one chunk of one record batch."""
        number = len(self._paths)
        path = self._folder / f"{number:06d}.arrow"
        table = pa.Table.from_batches(self._waiting, schema=PLAN_ROWS).combine_chunks()
        (rows,) = table.to_batches()
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, PLAN_ROWS) as writer:
                writer.write_batch(rows)
        except OSError as error:
            raise TryElsewhereError(f"{path}: no room to plan in ({error}); set TMPDIR") from error
        self._waiting, self._num_waiting = [], 0
        self._paths.append(path)
        self._frames.append(_frame(rows, number, self._sampling))


def _mapped(path: Path) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


_PLAIN = ("file_number", "num_prompt_tokens", "max_output_tokens")


def _frame(rows: pa.RecordBatch, chunk: int, sampling: SamplingSettings) -> pl.DataFrame:
    """Return the rows of `INDEX` for one chunk."""
    keys = _halves(
        [blake2b(key.encode(), digest_size=16).digest() for key in rows["row_key"].to_pylist()]
    )
    digests = _halves([one and one[:16] for one in rows["request_digest"].to_pylist()])
    found = pl.DataFrame(rows.select([*_PLAIN, "reject_code", "temperature", "seed"]))
    # The same request is meant to get the same answer where it is greedy or has a seed.
    is_greedy = pl.col("temperature").fill_null(sampling.temperature) == 0.0
    has_seed = pl.col("seed").is_not_null() | (sampling.seed is not None)
    return found.select(
        pl.lit(chunk).alias("chunk"),
        pl.int_range(pl.len()).alias("place"),
        "file_number",
        keys[0].alias("key_a"),
        keys[1].alias("key_b"),
        digests[0].alias("digest_a"),
        digests[1].alias("digest_b"),
        "num_prompt_tokens",
        "max_output_tokens",
        _prefixes(rows).alias("prefix"),
        pl.col("reject_code").is_not_null().alias("is_reject"),
        (is_greedy | has_seed).alias("is_shareable"),
    ).cast(pl.Schema(INDEX))


def _halves(digests: Sequence[bytes | None]) -> tuple[pl.Series, pl.Series]:
    """Return the first and the second half of 16-byte digests as whole numbers."""
    joined = b"".join([b"\0" * 16 if one is None else one for one in digests])
    numbers = np.frombuffer(joined, "<u8").reshape(-1, 2)
    is_known = pl.Series([one is not None for one in digests])
    first, second = (pl.Series(half) for half in (numbers[:, 0], numbers[:, 1]))
    return first.set(~is_known, None), second.set(~is_known, None)


def _prefixes(rows: pa.RecordBatch) -> pl.Series:
    """Return 8 bytes of a hash of each prompt's first tokens; the same in every process.

    Of a row with questions it is the first question's prompt.
    """
    lists = rows["prompt_token_ids"]
    tokens = memoryview(lists.values.to_numpy()).cast("B")
    beginnings: list[bytes | memoryview] = [
        tokens[4 * start : 4 * min(end, start + PREFIX_PROBE_TOKENS)]
        for start, end in pairwise(lists.offsets.to_pylist())
    ]
    tails = rows["question_token_ids"]
    if tails.null_count < len(tails):
        first = [array("i", one[0] if one else []).tobytes() for one in tails.to_pylist()]
        beginnings = [
            (bytes(begin) + tail)[: 4 * PREFIX_PROBE_TOKENS]
            for begin, tail in zip(beginnings, first, strict=True)
        ]
    joined = b"".join([blake2b(one, digest_size=8).digest() for one in beginnings])
    return pl.Series(np.frombuffer(joined, "<u8"))
