"""Names that people type: the nearest right one, and which are safe as one path segment."""

import difflib
import re
import unicodedata
from collections.abc import Iterable

from schemas.errors import SettingsError

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,127}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for the known name nearest to `name`, or the known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; known: {', '.join(names)}" if names else "; none are known"


def checked_segment(what: str, name: str) -> str:
    """Return `name` as it is, if it is safe as one segment of a key on any store.

    Raises:
        SettingsError: it is empty, longer than 128 characters, not NFC, or holds anything
            but letters, digits and `._=-` (so no slash, no space, no comma), or `..`.
    """
    is_plain = unicodedata.normalize("NFC", name) == name and ".." not in name
    if not is_plain or not _SEGMENT.fullmatch(name):
        raise SettingsError(
            f"{what} {name[:140]!r} cannot be part of a key: use 1 to 128 letters, digits, "
            "`.`, `_`, `=`, `-`, beginning with a letter or digit"
        )
    return name
