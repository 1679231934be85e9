"""Keys: the name of an object below the root of its store, and which names are refused.

A key is taken as it is written: `%2F` stays three characters and no case is folded. What is
refused could leave the root, could not be named on one of the stores, or would be read as
something else by a client (`?versionId=`).
"""

from urllib.parse import unquote

from schemas.errors import ContractError

# Half-written local files carry it; no key may, so a listing can leave them out by name.
DRAFT_PREFIX = ".draft-"

_MAX_KEY_BYTES = 1024  # S3's and GCS's limit
_MAX_SEGMENT_BYTES = 255  # ext4's and XFS's limit
_DELETE = 0x7F


def key_fault(key: str) -> str | None:
    """Return why `key` cannot name an object on every store, None when it can."""
    try:
        num_bytes = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not key:
        return "it is empty"
    if num_bytes > _MAX_KEY_BYTES:
        return f"it is {num_bytes} bytes long, the limit is {_MAX_KEY_BYTES}"
    if key.startswith("/"):
        return "it is absolute"
    if any(ord(character) < ord(" ") or ord(character) == _DELETE for character in unquote(key)):
        return "it holds a control character"
    if "\\" in key or "?" in key:
        return r"it holds `\` or `?`"
    return next((fault for segment in key.split("/") if (fault := _segment_fault(segment))), None)


def _segment_fault(segment: str) -> str | None:
    if not segment:
        return "it holds an empty segment"
    # Also `%2e%2e`: some servers and proxies decode a path once more than they should.
    if any(part in {".", ".."} for part in unquote(segment).split("/")):
        return "it holds a `.` or `..` segment"
    if segment.startswith(DRAFT_PREFIX):
        return f"`{DRAFT_PREFIX}` begins the names of half-written files"
    if len(segment.encode()) > _MAX_SEGMENT_BYTES:
        return f"a segment is longer than {_MAX_SEGMENT_BYTES} bytes"
    return None


def checked_key(key: str) -> str:
    """Return `key` as it is, if it can name an object on every store.

    Raises:
        ContractError: it cannot; nothing was read or written. Names that people type are
            checked where they enter (`schemas.names`), so a bad key here is a bug.
    """
    if fault := key_fault(key):
        raise ContractError(f"key {key[:200]!r} is refused: {fault}")
    return key


def checked_folder(prefix: str) -> str:
    """Return `prefix` without a closing slash; "" is the root of the store.

    Raises:
        ContractError: see `checked_key`.
    """
    return checked_key(prefix.removesuffix("/") or prefix) if prefix else ""
