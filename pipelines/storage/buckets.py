"""A store in a bucket of S3, Google Cloud Storage or Azure, through fsspec.

What was read in the clients' sources (s3fs 2026.9.0, gcsfs 2026.10.1, adlfs 2026.8.0) and
leads to what is done here stands in docs/decisions/0002-put-once.md.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from pipelines.storage.connection import Connection, FileSystem
from pipelines.storage.keys import checked_folder, checked_key
from pipelines.storage.reader import ObjectReader
from pipelines.storage.retrying import RetryingStore
from pipelines.storage.store import Listing, Names, StoredObject
from pipelines.storage.uris import Location

# s3fs uploads in parts from twice its chunk size on; this is one PUT for all that S3 takes in
# one (5 GiB). Above, it sends parts, and If-None-Match goes with the call that completes them.
_S3_CHUNK_BYTES = 5 * 2**29
# gcsfs frames the object with this and does not look whether the object holds it.
_GCS_BOUNDARY = b"--==0=="
# Reads of a Parquet footer and of small column chunks come from one request.
_READ_AHEAD_BYTES = 2**20


class BucketStore(RetryingStore):
    """See `Store`. Objects whose name ends in a slash, which consoles make, are not listed."""

    def __init__(self, location: Location, connection: Connection, *, deadline_s: float) -> None:
        super().__init__(uri=location.uri, deadline_s=deadline_s, secrets=connection.secrets)
        self._location = location
        self._connection = connection
        self._folder = location.path

    def child(self, key_prefix: str) -> "BucketStore":
        """See `Store`."""
        path = "/".join(part for part in (self._folder, checked_folder(key_prefix)) if part)
        return BucketStore(
            replace(self._location, path=path), self._connection, deadline_s=self._deadline_s
        )

    def open_read(self, key: str) -> BinaryIO:
        """See `Store`."""
        safe = checked_key(key)
        num_bytes = self._attempt("reading", safe, lambda: self._num_bytes(safe))
        return io.BufferedReader(
            ObjectReader(lambda start, end: self._read_range(safe, start, end), num_bytes),
            buffer_size=_READ_AHEAD_BYTES,
        )

    def sweep_drafts(self, *, min_age_s: float) -> int:  # noqa: ARG002 - the promise of `Store`
        """Return 0: an object is one request here, and half of one is nothing."""
        return 0

    @property
    def _files(self) -> FileSystem:
        return self._connection.file_system()

    def _path(self, key: str) -> str:
        return "/".join(part for part in (self._location.bucket, self._folder, key) if part)

    def _read(self, key: str) -> bytes:
        return self._files.cat_file(self._path(key))

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        def attempt() -> bytes:
            found = self._files.cat_file(self._path(key), start=start, end=end)
            if len(found) != end - start:
                raise ConnectionError(f"asked for {end - start} bytes, {len(found)} came")
            return found

        return self._attempt("reading", key, attempt)

    def _replace(self, key: str, content: bytes) -> None:
        self._upload(key, content, mode="overwrite")

    def _create(self, key: str, content: bytes) -> None:
        self._upload(key, content, mode="create")

    def _upload(self, key: str, content: bytes, *, mode: str) -> None:
        options = _upload_options(self._connection.scheme, content)
        self._files.pipe_file(self._path(key), content, mode=mode, **options)

    def _delete(self, key: str) -> None:
        self._files.rm_file(self._path(key))

    def _num_bytes(self, key: str) -> int:
        return int(self._facts(key)["size"])

    def _facts(self, key: str) -> Mapping[str, Any]:
        facts = self._files.info(self._path(key))
        if facts["type"] != "file":
            raise FileNotFoundError(f"{key} is a folder")
        return facts

    def _fingerprint(self, key: str) -> str:
        facts = self._facts(key)
        size = facts["size"]
        if md5 := facts.get("md5Hash"):  # GCS; its etag changes with every upload and label
            return f"md5-{base64.b64decode(str(md5)).hex()}-{size}"
        tag = str(facts.get("ETag") or facts.get("etag") or "").strip('"')
        if not tag:
            raise ConnectionError(f"no tag came with {key}")
        version = facts.get("VersionId") or facts.get("version_id")
        has_version = version not in {None, "null"}
        return f"etag-{tag}-{size}" + (f"-{version}" if has_version else "")

    def _list(self, folder: str) -> Listing:
        self._files.invalidate_cache()
        # From the bucket and with a prefix: find("bucket/folder") asks two more questions when
        # nothing is there, and answers with the object itself when one has the folder's name.
        prefix = "".join(f"{part}/" for part in (self._folder, folder) if part)
        found = self._files.find(self._location.bucket, prefix=prefix, detail=True)
        root = f"{self._path('')}/"
        return [
            StoredObject(key=path.removeprefix(root), num_bytes=int(facts["size"]))
            for path, facts in found.items()
            # adlfs strips the slash of the prefix, so `a/` would bring `ab/` too.
            if path.startswith(f"{self._location.bucket}/{prefix}")
            and facts["type"] == "file"
            and not path.endswith("/")
        ]

    def _list_names(self, folder: str) -> Names:
        self._files.invalidate_cache()
        path = self._path(folder)
        try:
            entries = self._files.ls(path, detail=True)
        except FileNotFoundError:
            return []
        names = {
            str(entry["name"]).removeprefix(f"{path}/").rstrip("/")
            + ("/" if entry["type"] == "directory" else "")
            for entry in entries
            if str(entry["name"]).startswith(f"{path}/")
        }
        return sorted(names - {"", "/"})


def _upload_options(scheme: str, content: bytes) -> dict[str, int]:
    """Return what makes the client send `content` in one request, with its condition."""
    if scheme == "s3":
        return {"chunksize": _S3_CHUNK_BYTES}
    if scheme == "gs":
        # Below its chunk size gcsfs frames the object in one request, and what follows a boundary
        # in the object would be cut off. From the chunk size on it sends the bytes alone, in a
        # resumable upload, whose condition GCS checks at the end.
        is_framed_safely = _GCS_BOUNDARY not in content
        return {"chunksize": len(content) + is_framed_safely}
    return {}  # adlfs sends blocks from 64 MB on, and the condition with the list of them
