"""The input of a finished run, read again beside its outcomes, if it is still what was planned."""

from collections.abc import Iterator

import pyarrow as pa

from pipelines.storage import expand_input
from pipelines.tables import ParquetInput, UnreadableFileError
from schemas.errors import SettingsError, VerificationError
from schemas.plans import InputFile, Plan


class PlannedInput:
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
