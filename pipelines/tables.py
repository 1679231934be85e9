"""The door to pyarrow: Parquet bytes out, foreign Parquet files in.

Knows Arrow schemas and Parquet; knows nothing of prompts, stores or jobs.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from schemas.errors import ContractError, VerificationError

MAX_READ_ROWS = 4096
"""Rows per record batch when a foreign file is read: bounds memory, not meaning."""


class UnreadableFileError(Exception):
    """These bytes are not Parquet, or a page of them is damaged."""


def parquet_bytes(table: pa.Table, schema: pa.Schema) -> bytes:
    """Return `table` as one complete Parquet file with page checksums.

    Raises:
        ContractError: the table's columns are not those of `schema`, in its order.
    """
    if table.schema.names != schema.names or table.schema.types != schema.types:
        raise ContractError(
            f"table does not fit its schema\n  got {table.schema}\n  expected {schema}"
        )
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


def parquet_writer(
    sink: pa.NativeFile, schema: pa.Schema, *, token_columns: Sequence[str] = ()
) -> pq.ParquetWriter:
    """Return a writer of Parquet with zstd and page checksums; one call, one row group.

    `token_columns` are Parquet's names of the values in lists of tokens. Written byte by byte
    (BYTE_STREAM_SPLIT) they take 160 instead of 199 bytes a row of 85 tokens, and half the
    time (pyarrow 26.0.1).
    """
    nested = {name.partition(".")[0] for name in token_columns}
    plain = [name for name in schema.names if name not in nested]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        write_page_checksum=True,
        store_schema=True,
        use_dictionary=plain if token_columns else True,  # pyright: ignore[reportArgumentType] - or names
        column_encoding=dict.fromkeys(token_columns, "BYTE_STREAM_SPLIT") or None,
    )


def table_of(rows: Sequence[object], schema: pa.Schema) -> pa.Table:
    """Return the frozen dataclass `rows` as a table: one column per field of `schema`."""
    columns = [
        pa.array([getattr(row, name) for row in rows], type=kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def read_own(content: bytes, schema: pa.Schema, *, key: str) -> pa.Table:
    """Return the table in these bytes, which promptmill wrote under `key`.

    Raises:
        VerificationError: damaged bytes, or another schema than `schema`.
    """
    try:
        table = own_file(content).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise VerificationError(f"{key}: cannot be read: {str(error)[:200]}") from error
    if table.schema.names != schema.names or table.schema.types != schema.types:
        raise VerificationError(f"{key}: has columns {table.schema.names}, expected {schema.names}")
    return table


def own_file(content: bytes) -> pq.ParquetFile:
    """Return the Parquet file in these bytes; read it with `use_threads=False`.

    Arrow's threads let go of a buffer after its reader has returned. Where the bytes are
    Python's they need the interpreter for that, and one that is ending aborts the process:
    "terminate called without an active exception", in 8 of 65 short runs (pyarrow 26.0.1).
    """
    return pq.ParquetFile(
        pa.BufferReader(content), page_checksum_verification=True, pre_buffer=False
    )


class ParquetInput:
    """A foreign Parquet file, opened: its columns, its rows, and a bounded way to read them."""

    def __init__(self, source: BinaryIO) -> None:
        """Open the file's footer.

        Raises:
            UnreadableFileError: the footer is not that of a Parquet file.
        """
        try:
            self._file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
            self.schema: pa.Schema = self._file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnreadableFileError(str(error).splitlines()[0][:200]) from error

    @property
    def num_rows(self) -> int:
        """Rows, by the footer."""
        return self._file.metadata.num_rows

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in row order, at most `MAX_READ_ROWS` rows at a time.

        Raises:
            UnreadableFileError: a page is damaged; rows yielded before must not be trusted.
        """
        try:
            if not columns:
                yield from _empty_batches(self.num_rows)
                return
            yield from self._file.iter_batches(
                batch_size=MAX_READ_ROWS, columns=list(columns), use_threads=False
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnreadableFileError(str(error).splitlines()[0][:200]) from error


def _empty_batches(num_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, num_rows, MAX_READ_ROWS):
        rows = pa.nulls(min(MAX_READ_ROWS, num_rows - start))
        yield pa.RecordBatch.from_arrays([rows], names=[""])


class NotText:
    """Stands for a value that Python cannot hold; there is one, `NOT_TEXT`."""


NOT_TEXT = NotText()


def values(column: pa.Array) -> list[object]:
    """Return the column as Python values; what has none comes as `NOT_TEXT`.

    Parquet files may hold any bytes in a text column, for example lone surrogates, and dates
    that Python does not know. Times in nanoseconds come as text, for Python would cut them.
    """
    kind = column.type
    if pa.types.is_temporal(kind) and getattr(kind, "unit", None) == "ns":
        column = column.cast(pa.string())
    try:
        return column.to_pylist()
    except _NO_PYTHON_VALUE:
        return [_value(scalar) for scalar in column]


_NO_PYTHON_VALUE = (ValueError, OverflowError, LookupError, pa.ArrowException)


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except _NO_PYTHON_VALUE:
        return NOT_TEXT


def take_across(
    chunks: Sequence[pa.RecordBatch], chunk: NDArray[np.integer], row: NDArray[np.integer]
) -> pa.Table:
    """Return the rows at these (chunk, row) places, in the order asked for; one or more.

    Each chunk is visited once, so that memory-mapped chunks are read in order; nothing but
    the rows asked for is copied.
    """
    order = np.lexsort((row, chunk))
    visited, starts = np.unique(chunk[order], return_index=True)
    rows = np.split(row[order].astype(np.int64), starts[1:])
    pieces = [chunks[int(one)].take(pa.array(at)) for one, at in zip(visited, rows, strict=True)]
    taken = pa.Table.from_batches(pieces, schema=chunks[0].schema).combine_chunks()
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return taken.take(pa.array(back))
