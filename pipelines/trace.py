"""Trace: the lineage table of a run, derived from its commits; it can be rebuilt at any time."""

import pyarrow as pa

from pipelines.ledger import LINEAGE_KEY, lineage_table
from pipelines.storage import Store
from pipelines.tables import parquet_bytes, read_own
from schemas.commits import Manifest
from schemas.lineage import LINEAGE


def trace(store: Store, manifest: Manifest) -> pa.Table:
    """Put the run's lineage.parquet and return it.

    It holds nothing that the commits do not: a crash here loses nothing.
    """
    table = lineage_table(manifest)
    store.put(LINEAGE_KEY, parquet_bytes(table, LINEAGE))
    return table


def read_lineage(store: Store) -> pa.Table:
    """Return the run's lineage table.

    Raises:
        FileNotFoundError: the run is not sealed.
        VerificationError: the file is damaged; `trace` rebuilds it from the commits.
    """
    return read_own(store.get(LINEAGE_KEY), LINEAGE, key=LINEAGE_KEY)
