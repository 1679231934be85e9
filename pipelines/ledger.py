"""What a run has on storage, read: commits, the manifest, the pointer, its lineage.

Readers trust the manifest alone; the rest is for those who resume, seal or audit a run.
"""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from pipelines.storage import Store
from pipelines.tables import table_of
from schemas.commits import Commit, Current, Manifest, from_json
from schemas.lineage import LINEAGE

MANIFEST_KEY = "manifest.json"
LINEAGE_KEY = "lineage.parquet"
PART_FOLDERS = ("generations", "rejects")
_NUM_READERS = 8
_PART = re.compile(r"/b\d{7}-\d{4,}-[0-9a-f]{12}\.parquet$")


def commit_key(batch: str) -> str:
    """Return where the commit of this batch lies below its run."""
    return f"commits/{batch}.json"


def committed_batches(store: Store) -> frozenset[str]:
    """Return the ids of the batches that have a commit: one listing."""
    names = (item.key.rsplit("/", 1)[-1] for item in store.list("commits/"))
    return frozenset(name.removesuffix(".json") for name in names if name.endswith(".json"))


def written_manifest(store: Store) -> Manifest | None:
    """Return the run's manifest, or None for a run that is not sealed."""
    try:
        content = store.get(MANIFEST_KEY)
    except FileNotFoundError:
        return None
    return from_json(Manifest, content, key=MANIFEST_KEY)


def commits_of(store: Store, batches: Iterable[str]) -> tuple[Commit, ...]:
    """Return the commits of these batches, in their order.

    Raises:
        FileNotFoundError: one of them has no commit.
    """

    def read(batch: str) -> Commit:
        return from_json(Commit, store.get(commit_key(batch)), key=commit_key(batch))

    with ThreadPoolExecutor(max_workers=_NUM_READERS) as readers:
        return tuple(readers.map(read, batches))


def orphans(store: Store, manifest: Manifest) -> tuple[str, ...]:
    """Return the keys of parts that no commit of this sealed run names.

    Files of others, whose names are not those of parts, are left alone.
    """
    named = {part.key for one in manifest.commits for part in one.parts}
    found = [item.key for folder in PART_FOLDERS for item in store.list(f"{folder}/")]
    return tuple(key for key in found if key not in named and _PART.search(key))


def current_pointer(output: Store) -> Current | None:
    """Return what points readers of this output to a run, or None where no run has ended yet."""
    keys = [item.key for item in output.list("current/") if _number_of(item.key) is not None]
    if not keys:
        return None
    last = max(keys, key=lambda key: _number_of(key) or 0)
    return from_json(Current, output.get(last), key=last)


def recent_runs(output: Store, *, most: int) -> tuple[str, ...]:
    """Return the runs that readers of this output were last pointed to, the latest first.

    Runs that were deleted meanwhile are among them.

    Raises:
        VerificationError: a pointer is damaged.
    """
    keys = [item.key for item in output.list("current/") if _number_of(item.key) is not None]
    latest = sorted(keys, key=lambda key: _number_of(key) or 0, reverse=True)[: 2 * most]
    pointers = [from_json(Current, output.get(key), key=key) for key in latest]
    return tuple(dict.fromkeys(pointer.run_key for pointer in pointers))[:most]


def current_run(output: Store) -> str | None:
    """Return the key of the run that readers of this output should read, or None."""
    pointer = current_pointer(output)
    return None if pointer is None else pointer.run_key


def next_number(store: Store, prefix: str) -> int:
    """Return 1 + the highest number that begins a name below `prefix`; 1 where there is none."""
    numbers = (_number_of(item.key) for item in store.list(prefix))
    return 1 + max((number for number in numbers if number is not None), default=0)


def _number_of(key: str) -> int | None:
    """Return the number of an attempt or a pointer; None for a file that is not ours."""
    found = re.fullmatch(r"(\d{4,6})(-end)?\.json", key.rsplit("/", 1)[-1])
    return None if found is None else int(found[1])


def lineage_table(manifest: Manifest) -> pa.Table:
    """Return one row of `LINEAGE` per batch, in plan order."""
    return table_of([commit.lineage for commit in manifest.commits], LINEAGE)
