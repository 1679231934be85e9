"""Identities: content hashes that are safe as file names.

An id is its scheme (which names what was hashed and by which rule), a dash and 64 hex
digits of SHA-256. To change what takes part in a hash is to change its scheme.
"""

import hashlib
import json
from collections.abc import Container, Mapping

REQUEST_SCHEME = "rq1"
RUN_SCHEME = "run1"


def content_id(scheme: str, fields: Mapping[str, object]) -> str:
    """Return the id of `fields`: the scheme, a dash, 64 hex digits of SHA-256.

    Key order does not count; every value does. Keep paths and clock readings out:
    where a thing lies and when it was seen are not part of what it is.

    Raises:
        TypeError: a value has no JSON form (bytes, a set, a dataclass).
        ValueError: a float is NaN or infinite.
    """
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{scheme}-{hashlib.sha256(canonical.encode('ascii')).hexdigest()}"


def request_digest(profile_id: str, overrides: bytes, token_ids: bytes) -> bytes:
    """Return the 32-byte SHA-256 of all that can change the answer to one prompt.

    `profile_id` covers the model's weights, the job's sampling settings and the output
    constraint; `overrides` is the row's own sampling settings (empty for none); `token_ids`
    are the prompt's tokens as little-endian int32.
    """
    digest = hashlib.sha256(profile_id.encode("ascii"))
    digest.update(len(overrides).to_bytes(4, "little"))
    digest.update(overrides)
    digest.update(token_ids)
    return digest.digest()


def request_id(digest: bytes) -> str:
    """Return the id of the request with this 32-byte digest."""
    return f"{REQUEST_SCHEME}-{digest.hex()}"


def sha256_hex(content: bytes) -> str:
    """Return the SHA-256 of `content` as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def batch_id(number: int) -> str:
    """Return the id of the plan's batch `number`: names sort as the plan does."""
    return f"b{number:07d}"


def part_key(folder: str, batch: str, epoch: int, sha256: str) -> str:
    """Return where a part lies below its run: the content's hash is in its name."""
    return f"{folder}/{batch}-{epoch:04d}-{sha256[:12]}.parquet"


def position_key(file: str, row: int) -> str:
    """Return the key of a row without a usable id: its file and its 0-based row number."""
    return f"{file}#{row}"


def is_position_key(text: str, files: Container[str]) -> bool:
    """Return whether `text` is a key that a row or a whole file of these `files` could have.

    Such a text is not taken as an id: two rows would bear the same key.
    """
    if "#" not in text:
        return text in files
    file, _, row = text.rpartition("#")
    return text in files or (file in files and row.isdigit())


CODE_VERSION = "1"
"""Version of the steps, part of every run's key: raise it when a step changes what it writes."""
