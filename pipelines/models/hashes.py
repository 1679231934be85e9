"""The identity of a checkpoint's files: their SHA-256, remembered between runs."""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from schemas.checkpoints import ModelFile
from schemas.ids import content_id

MEMORY_NAME: Final = "hashes.json"
_WEIGHTS_SCHEME = "wt1"
_SETTLED_NS = 2_000_000_000
"""A file younger than this is not remembered: a second write within one tick of the file
system's clock would leave size and time as they are."""
_MEMORY = TypeAdapter(dict[str, tuple[int, int, str]])


def weights_hash(files: Iterable[ModelFile]) -> str:
    """Return the content id over the files' names and hashes; neither order nor folder counts."""
    return content_id(_WEIGHTS_SCHEME, {file.name: file.sha256 for file in files})


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex; it is read whole (1 to 2 GB per second)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashed_files(folder: Path, names: Sequence[str], cache_dir: Path) -> tuple[ModelFile, ...]:
    """Return the named files of `folder` with their hashes, in the order of `names`.

    A file whose path, size and modification time (ns) are in `cache_dir/hashes.json` is not
    read: its remembered hash is trusted. A change that keeps all three is not seen here. The
    memory may be deleted at any time, and a broken one is started afresh; of two processes
    that write it at once one may have to hash again next time.
    """
    memory = _remembered(cache_dir)
    known: dict[str, tuple[int, int, str]] = {}
    settled: dict[str, tuple[int, int, str]] = {}
    for name in names:
        path = folder / name
        stat = path.stat()
        entry = memory.get(str(path))
        if entry is None or entry[:2] != (stat.st_size, stat.st_mtime_ns):
            entry = (stat.st_size, stat.st_mtime_ns, sha256_of(path))
        known[name] = entry
        if time.time_ns() - stat.st_mtime_ns > _SETTLED_NS:
            settled[str(path)] = entry
    if any(memory.get(path) != entry for path, entry in settled.items()):
        _remember(cache_dir, memory | settled)
    return tuple(
        ModelFile(name=name, num_bytes=num_bytes, sha256=sha256)
        for name, (num_bytes, _, sha256) in known.items()
    )


def _remembered(cache_dir: Path) -> dict[str, tuple[int, int, str]]:
    try:
        return _MEMORY.validate_json((cache_dir / MEMORY_NAME).read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}


def _remember(cache_dir: Path, entries: dict[str, tuple[int, int, str]]) -> None:
    cache_dir.mkdir(parents=True, exist_ok=True)
    kept = {path: entry for path, entry in entries.items() if Path(path).exists()}
    number, draft = tempfile.mkstemp(prefix=f".{MEMORY_NAME}-", dir=cache_dir)
    with os.fdopen(number, "wb") as file:
        file.write(_MEMORY.dump_json(kept, indent=1))
    Path(draft).replace(cache_dir / MEMORY_NAME)
