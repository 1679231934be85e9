"""A store whose process dies, or whose call fails, at a chosen storage call.

For crash sweeps: run once with `CrashingStore(store)` and read `num_calls`, then run in a child
with `die_before=n` and with `die_after=n` for every n from 1 to that, and recover.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from pipelines.storage import Store
from pipelines.storage.store import Listing, Names

Answer = TypeVar("Answer")


class _Counter:
    def __init__(self):
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []

    def next(self, name: str, key: str) -> int:
        with self._lock:
            self.calls.append((name, key))
            return len(self.calls)


class CrashingStore:
    """Wraps a store and counts its calls from 1; children count on in the same counter.

    `die_before`/`die_after`: kill -9 this process before or after call n took effect.
    `raise_before`/`raise_after`: raise ConnectionError there, once; the second is what an
    acknowledgement lost for good looks like to the caller.
    """

    def __init__(
        self,
        store: Store,
        die_before: int | None = None,
        die_after: int | None = None,
        *,
        raise_before: int | None = None,
        raise_after: int | None = None,
        counter: _Counter | None = None,
    ):
        self._store = store
        self._die = (die_before, die_after)
        self._raise = (raise_before, raise_after)
        self._counter = counter or _Counter()

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def num_calls(self) -> int:
        return len(self._counter.calls)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and key of every call so far, in order."""
        return list(self._counter.calls)

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self._store.get(key))

    def put(self, key: str, content: bytes) -> None:
        return self._call("put", key, lambda: self._store.put(key, content))

    def put_once(self, key: str, content: bytes) -> bool:
        return self._call("put_once", key, lambda: self._store.put_once(key, content))

    def list(self, prefix: str) -> Listing:
        return self._call("list", prefix, lambda: self._store.list(prefix))

    def list_names(self, prefix: str) -> Names:
        return self._call("list_names", prefix, lambda: self._store.list_names(prefix))

    def delete(self, key: str) -> None:
        return self._call("delete", key, lambda: self._store.delete(key))

    def exists(self, key: str) -> bool:
        return self._call("exists", key, lambda: self._store.exists(key))

    def open_read(self, key: str) -> BinaryIO:
        return self._call("open_read", key, lambda: self._store.open_read(key))

    def fingerprint(self, key: str) -> str:
        return self._call("fingerprint", key, lambda: self._store.fingerprint(key))

    def probe(self) -> None:
        return self._call("probe", "", self._store.probe)

    def sweep_drafts(self, *, min_age_s: float) -> int:
        return self._call("sweep_drafts", "", lambda: self._store.sweep_drafts(min_age_s=min_age_s))

    def child(self, key_prefix: str) -> "CrashingStore":
        return CrashingStore(
            self._store.child(key_prefix),
            *self._die,
            raise_before=self._raise[0],
            raise_after=self._raise[1],
            counter=self._counter,
        )

    def _call(self, name: str, key: str, call: Callable[[], Answer]) -> Answer:
        number = self._counter.next(name, key)
        self._fault(number, 0)
        answer = call()
        self._fault(number, 1)
        return answer

    def _fault(self, number: int, side: int) -> None:
        if self._die[side] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._raise[side] == number:
            raise ConnectionError(f"call {number} fails on purpose")
