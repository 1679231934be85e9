"""A store in a folder of this machine, or of a file server that has hard links.

An object is written to a draft beside its place, brought to the disk, and only then given its
name, by one system call. A crash at any point leaves the old object or the new one, and at
worst a draft, which no listing shows.
"""

import errno
import hashlib
import io
import os
import secrets
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, TypeVar

from pipelines.storage.keys import DRAFT_PREFIX, checked_folder, checked_key
from pipelines.storage.retrying import RetryingStore
from pipelines.storage.store import Listing, Names, StoredObject
from schemas.errors import SettingsError

Answer = TypeVar("Answer")

# What is written here may be somebody's prompts: nobody else on the machine reads it.
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class LocalStore(RetryingStore):
    """See `Store`. Links are followed for reading; nothing is written through one that leaves."""

    def __init__(self, root: Path, *, deadline_s: float) -> None:
        super().__init__(uri=str(root), deadline_s=deadline_s)
        self._root = root

    def child(self, key_prefix: str) -> "LocalStore":
        """See `Store`."""
        return LocalStore(self._root / checked_folder(key_prefix), deadline_s=self._deadline_s)

    def open_read(self, key: str) -> BinaryIO:
        """See `Store`. Reads are the file's own and not tried again."""
        path = self._root / checked_key(key)
        return self._attempt("reading", key, lambda: _as_absent(path, _opened))

    def sweep_drafts(self, *, min_age_s: float) -> int:
        """See `Store`."""
        written_before = time.time() - min_age_s
        num_swept = 0
        for path in self._root.rglob(f"{DRAFT_PREFIX}*"):
            try:
                if path.lstat().st_mtime <= written_before:
                    path.unlink()
                    num_swept += 1
            except FileNotFoundError:  # its writer has finished
                continue
        return num_swept

    def _read(self, key: str) -> bytes:
        return _as_absent(self._root / key, Path.read_bytes)

    def _num_bytes(self, key: str) -> int:
        return _as_absent(self._root / key, _num_bytes)

    def _fingerprint(self, key: str) -> str:
        with _as_absent(self._root / key, _opened) as file:
            return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def _replace(self, key: str, content: bytes) -> None:
        path = self._writable(key)
        with _draft(path.parent, content) as draft:
            draft.replace(path)
        _bring_names_to_disk(path.parent)

    def _create(self, key: str, content: bytes) -> None:
        path = self._writable(key)
        try:
            with _draft(path.parent, content) as draft:
                # fsspec's own mode="create" looks first and writes afterwards on local disks:
                # with 8 threads racing, 44 of 100 trials had more than one winner (fsspec
                # 2026.9.0). A hard link is made by one system call, or not at all.
                path.hardlink_to(draft)
        except FileExistsError:
            if path.is_dir():
                raise _error(IsADirectoryError, errno.EISDIR, path) from None
            # The other writer may not have come to its own fsync yet, and we report its object.
            _bring_names_to_disk(path.parent)
            raise
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise SettingsError(
                    f"{self.uri}: cannot write `{key}` once, this file system has no hard links "
                    f"({errno.errorcode[error.errno]})\n"
                    "  use a disk with ext4, XFS, Btrfs, APFS or NFS, or a bucket"
                ) from error
            raise
        _bring_names_to_disk(path.parent)

    def _delete(self, key: str) -> None:
        _as_absent(self._inside(self._root / key), Path.unlink)

    def _list(self, folder: str) -> Listing:
        found: Listing = []
        for parent, _, names in os.walk(self._root / folder, onerror=_unless_absent):
            for name in names:
                path = Path(parent, name)
                try:
                    facts = path.stat()
                except FileNotFoundError:  # deleted while we look, or a link to nothing
                    continue
                if stat.S_ISREG(facts.st_mode) and not name.startswith(DRAFT_PREFIX):
                    key = path.relative_to(self._root).as_posix()
                    found.append(StoredObject(key=key, num_bytes=facts.st_size))
        return found

    def _list_names(self, folder: str) -> Names:
        try:
            with os.scandir(self._root / folder) as entries:
                return [
                    entry.name + ("/" if entry.is_dir() else "")
                    for entry in entries
                    if not entry.name.startswith(DRAFT_PREFIX)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _writable(self, key: str) -> Path:
        path = self._inside(self._root / key)
        _make_folders(path.parent)
        return path

    def _inside(self, path: Path) -> Path:
        """Return `path`, if no link on the way leads out of the root."""
        root = self._root.resolve()
        if not path.parent.resolve().is_relative_to(root):
            raise SettingsError(
                f"{self.uri}: `{path.relative_to(self._root)}` would be written outside of the "
                "store, a folder on the way is a link\n  nothing was written; remove the link"
            )
        return path


def _opened(path: Path) -> io.BufferedReader:
    return path.open("rb")


def _num_bytes(path: Path) -> int:
    if path.is_dir():
        raise _error(IsADirectoryError, errno.EISDIR, path)
    return path.stat().st_size


def _as_absent(path: Path, read: Callable[[Path], Answer]) -> Answer:
    """Return `read(path)`. In a bucket there are no folders, so here a folder is not there."""
    try:
        return read(path)
    except (IsADirectoryError, NotADirectoryError) as error:
        raise _error(FileNotFoundError, errno.ENOENT, path) from error


@contextmanager
def _draft(folder: Path, content: bytes) -> Generator[Path]:
    """A file in `folder` that holds `content` on the disk, gone when the block ends."""
    path = folder / f"{DRAFT_PREFIX}{secrets.token_hex(16)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _make_folders(folder: Path) -> None:
    missing = list(takewhile(lambda each: not each.is_dir(), (folder, *folder.parents)))
    for each in reversed(missing):
        # Path.mkdir(parents=True) would give the mode to the last one only.
        try:
            each.mkdir(_FOLDER_MODE)
        except FileExistsError:  # another writer made it, or it is a file
            if not each.is_dir():
                raise _error(NotADirectoryError, errno.ENOTDIR, each) from None
        _bring_names_to_disk(each.parent)


def _bring_names_to_disk(folder: Path) -> None:
    """After this, files named in `folder` until now are found there after a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _error(kind: type[OSError], number: int, path: Path) -> OSError:
    return kind(number, os.strerror(number), str(path))
