"""The half of a store's promises that every backend keeps in the same way.

A backend adds single attempts. What tries again, compares what lies there and refuses keys is
here.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable

from pipelines.storage.attempts import Answer, Call, Doing, until_deadline
from pipelines.storage.keys import checked_folder, checked_key
from pipelines.storage.store import Listing, Names
from schemas.errors import PromptmillError, SettingsError


class RetryingStore(ABC):
    """`Store` from single attempts: what retries, compares and checks keys is here."""

    def __init__(self, *, uri: str, deadline_s: float, secrets: tuple[str, ...] = ()) -> None:
        self.uri = uri
        self._deadline_s = deadline_s
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def get(self, key: str) -> bytes:
        """See `Store`."""
        safe = checked_key(key)
        return self._attempt("reading", safe, lambda: self._read(safe))

    def put(self, key: str, content: bytes) -> None:
        """See `Store`."""
        safe = checked_key(key)
        self._attempt("writing", safe, lambda: self._replace(safe, content))

    def put_once(self, key: str, content: bytes) -> bool:
        """See `Store`."""
        safe = checked_key(key)
        return self._attempt("writing", safe, lambda: self._create_or_compare(safe, content))

    def list(self, prefix: str) -> Listing:
        """See `Store`."""
        folder = checked_folder(prefix)
        found = self._attempt("listing", folder, lambda: self._list(folder))
        return sorted(found, key=lambda stored: stored.key)

    def list_names(self, prefix: str) -> Names:
        """See `Store`."""
        folder = checked_folder(prefix)
        return sorted(self._attempt("listing", folder, lambda: self._list_names(folder)))

    def delete(self, key: str) -> None:
        """See `Store`."""
        safe = checked_key(key)
        try:
            self._attempt("deleting", safe, lambda: self._delete(safe))
        except FileNotFoundError:
            return

    def exists(self, key: str) -> bool:
        """See `Store`."""
        safe = checked_key(key)
        try:
            self._attempt("asking for", safe, lambda: self._num_bytes(safe))
        except FileNotFoundError:
            return False
        return True

    def fingerprint(self, key: str) -> str:
        """See `Store`."""
        safe = checked_key(key)
        return self._attempt("reading", safe, lambda: self._fingerprint(safe))

    def probe(self) -> None:
        """See `Store`."""
        key = f".probe/{secrets.token_hex(16)}"
        first, second = b"first", b"second"

        is_first_told = self.put_once(key, first)
        is_second_told = self.put_once(key, second)
        there = self.get(key)
        self.delete(key)

        if not is_first_told or is_second_told or there != first:
            raise SettingsError(
                f"{self.uri}: of two writers that create one object, the second must lose; here "
                f"the first was told {is_first_told}, the second {is_second_told}, and the object "
                f"held {there[:16]!r}\n"
                "  commits of one worker would overwrite those of another; use a store that keeps "
                "If-None-Match (S3, GCS, Azure, a local disk), or allow a single writer only"
            )

    def _create_or_compare(self, key: str, content: bytes) -> bool:
        try:
            self._create(key, content)
        except PromptmillError:  # ours, raised before anything was sent
            raise
        except Exception:
            # Never by the error's class: after a lost acknowledgement every client says "already
            # exists" about our own object, and a time-out says nothing at all.
            try:
                there = self._read(key)
            except FileNotFoundError:
                pass
            else:
                return there == content
            raise
        return True

    def _attempt(self, doing: Doing, key: str, attempt: Callable[[], Answer]) -> Answer:
        call = Call(doing=doing, key=key, place=self.uri, secrets=self._secrets)
        return until_deadline(call, attempt, self._deadline_s)

    # One attempt each; `key` and `folder` are checked. Errors are the client's own.

    @abstractmethod
    def _read(self, key: str) -> bytes: ...

    @abstractmethod
    def _replace(self, key: str, content: bytes) -> None: ...

    @abstractmethod
    def _create(self, key: str, content: bytes) -> None: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _num_bytes(self, key: str) -> int: ...

    @abstractmethod
    def _fingerprint(self, key: str) -> str: ...

    @abstractmethod
    def _list(self, folder: str) -> Listing: ...

    @abstractmethod
    def _list_names(self, folder: str) -> Names: ...
