"""The door to storage: one folder on a disk or in a bucket, and what it promises.

`store.py` holds the promises, `local.py` and `buckets.py` keep them, `opening.py` turns a URI
into a store, `inputs.py` finds the Parquet files that a job file points at, `partitions.py` the
partitions.
"""

from pipelines.storage.inputs import expand_input
from pipelines.storage.opening import open_store
from pipelines.storage.partitions import HOLE, stored_partitions
from pipelines.storage.store import Store, StoredObject

__all__ = ["HOLE", "Store", "StoredObject", "expand_input", "open_store", "stored_partitions"]
