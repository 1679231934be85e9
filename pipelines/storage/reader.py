"""An object in a bucket as a seekable file."""

import io
from collections.abc import Callable
from typing import Any


class ObjectReader(io.RawIOBase):
    """A raw file of `num_bytes` bytes: every read is one request, for just the range asked for."""

    def __init__(self, read_range: Callable[[int, int], bytes], num_bytes: int) -> None:
        self._read_range = read_range
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, without a request; return the new position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}
        if start[whence] + offset < 0:
            raise ValueError(f"cannot seek to {start[whence] + offset}, before the start")
        self._position = start[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - what io.RawIOBase promises
        """Fill `buffer` from the position, as far as the object goes; return how many bytes."""
        view = memoryview(buffer).cast("B")
        found = self._take(len(view))
        view[: len(found)] = found
        return len(found)

    def readall(self) -> bytes:
        """Return the rest in one request; io.RawIOBase would ask for 8 KiB at a time."""
        return self._take(self._num_bytes)

    def _take(self, at_most: int) -> bytes:
        end = min(self._position + at_most, self._num_bytes)
        if self._position >= end:
            return b""
        found = self._read_range(self._position, end)
        self._position = end
        return found
