"""The promises of a store.

What a store does not promise: an order among writers of different keys, or that an object
stays as it is while it is read. Keys that are only ever written by `put_once` do.
"""

from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One line of a listing."""

    key: str
    num_bytes: int


# Inside the class `list` is the method.
Listing = list[StoredObject]
Names = list[str]


class Store(Protocol):
    """Objects by key below one root. Threads may share a store; a forked child may use it too.

    Every call is tried again until the store's deadline. All of them raise:

        ContractError: the key could leave the root or is not a key on every store.
        SettingsError: the store refuses us; nothing was changed.
        StorageError: it failed until the deadline; whether it took effect is not known.
    """

    @property
    def uri(self) -> str:
        """The root, without credentials; `open_store(uri)` opens it again."""
        ...

    def get(self, key: str) -> bytes:
        """Return the whole object as it is now, never from a cache.

        Raises:
            FileNotFoundError: there is no such object (a folder is none).
        """
        ...

    def put(self, key: str, content: bytes) -> None:
        """Make `key` hold `content`, whatever was there: complete, or not at all."""
        ...

    def put_once(self, key: str, content: bytes) -> bool:
        """Create `key` if it is absent; return True when it holds `content` now, else False.

        Atomic: among any number of writers with different bytes exactly one is told True, and
        its bytes stay. Writers of the same bytes are all told True. After an error of any
        kind what lies there decides: an acknowledgement may be lost after the write took
        effect, and the second try is then told that its own object exists already. So a
        caller that died and calls again with the same bytes is told True.
        """
        ...

    def list(self, prefix: str) -> Listing:
        """Return every object in the folder `prefix` and below, sorted by key.

        `commits` and `commits/` mean the same and do not match `commits-old/…`; "" is the whole
        store; a folder that does not exist is empty. An object is listed from the moment its
        `put` returned. Local links to folders are not followed.
        """
        ...

    def list_names(self, prefix: str) -> Names:
        """Return the names directly in the folder `prefix`, sorted, folders with a `/`."""
        ...

    def delete(self, key: str) -> None:
        """Make `key` absent; it may be so already."""
        ...

    def exists(self, key: str) -> bool:
        """Return whether there is an object `key` now; a folder is none."""
        ...

    def open_read(self, key: str) -> BinaryIO:
        """Return the object as a seekable file, read as it is asked for.

        If others may overwrite it meanwhile, compare `fingerprint` before and after. In a
        bucket every read is tried again by itself, with the errors named above.

        Raises:
            FileNotFoundError: there is no such object.
        """
        ...

    def fingerprint(self, key: str) -> str:
        """Return what changes when the content of `key` does, and does not hold its path.

        Local files: SHA-256 of the bytes, which are all read. Buckets: the tag that the
        provider keeps, and nothing is read; the same bytes uploaded twice may then differ
        (encryption by KMS, versions), which costs a needless run and never a wrong one.

        Raises:
            FileNotFoundError: there is no such object.
        """
        ...

    def child(self, key_prefix: str) -> "Store":
        """Return the store whose root is the folder `key_prefix` of this one."""
        ...

    def sweep_drafts(self, *, min_age_s: float) -> int:
        """Delete what writers that died left half-written; return how many.

        Nothing that a listing shows is touched. Drafts younger than `min_age_s` seconds may
        belong to a living writer and stay. Only local stores have drafts.
        """
        ...

    def probe(self) -> None:
        """Check once that this store keeps the promise of `put_once`, with an object of its own.

        A key below `.probe/` is created twice; the second must lose. It is deleted again; a
        crash half way leaves it there, and no reader looks there.

        Raises:
            SettingsError: the second won or changed the first: commits would be lost here.
        """
        ...
