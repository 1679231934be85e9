"""What fsspec's clients do, seen with real servers, and no caller must notice.

The fakes repeat it: gcsfs 2026.10.1 against fake-gcs-server, adlfs 2026.8.0 against Azurite.
"""

import os

from pipelines.storage import open_store


class FramesObjects:
    """gcsfs: below its chunk size it sends the object between two lines `--==0==`."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}

    def pipe_file(self, path: str, value: bytes, *, mode: str, chunksize: int) -> None:
        is_framed = len(value) < chunksize
        self.objects[path] = value.partition(b"\n--==0==")[0] if is_framed else value

    def cat_file(self, path: str) -> bytes:
        return self.objects[path]


class StripsThePrefix:
    """adlfs: `find` takes the slash from the end of its prefix."""

    def find(self, path: str, *, prefix: str, detail: bool) -> dict[str, dict[str, object]]:
        names = ("out/a/1", "out/ab/2")
        found = [f"{path}/{name}" for name in names if name.startswith(prefix.strip("/"))]
        return {name: {"type": "file", "size": 1} for name in found}

    def invalidate_cache(self) -> None:
        """Nothing is kept."""


def opened_with(uri: str, client: object):
    store = open_store(uri)
    store._connection._made[os.getpid()] = client
    return store


def test_an_object_that_holds_the_boundary_of_gcsfs_is_kept_whole():
    """A prompt with that line in it cut off its own generations file, which was then "there"."""
    store = opened_with("gs://bucket/out", FramesObjects())

    for body in (b"", b"plain", b"head\n--==0==--\ntail"):
        store.put("a", body)
        assert store.get("a") == body


def test_a_listing_leaves_out_the_sibling_that_adlfs_brings():
    store = opened_with("abfs://container/out", StripsThePrefix())

    assert [stored.key for stored in store.list("a")] == ["a/1"]
