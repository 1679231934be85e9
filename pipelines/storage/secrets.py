"""What is taken out of a text before it becomes part of an error message."""

import re
from collections.abc import Iterable

_HIDDEN = "***"
# user:password@ in a URL, every query (presigned URLs, SAS tokens), AWS access key ids, and
# what follows the names that providers give to secrets.
_PATTERNS = (
    re.compile(r"(?<=://)[^\s@]+(?=@)"),
    re.compile(r"(?<=\?)[^\s'\"`<>]+"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(
        r"(?i)(?<=AccountKey=)[^;\s'\"]+|(?<=SharedAccessSignature=)[^;\s'\"]+"
        r"|(?<=Bearer )\S+|(?<=sig=)[^&\s'\"]+|(?<=Credential=)[^,\s'\"]+"
    ),
)
_SHORTEST_SECRET = 4  # below that, hiding a value would eat the words around it


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with every one of `secrets`, and all that looks like one, as `***`."""
    known = sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)
    return _without_patterns(_without_words(text, known))


def _without_words(text: str, words: list[str]) -> str:
    if not words:
        return text
    return re.sub("|".join(re.escape(word) for word in words), _HIDDEN, text)


def _without_patterns(text: str) -> str:
    found = {match.group() for pattern in _PATTERNS for match in pattern.finditer(text)}
    return _without_words(text, sorted(found - {""}, key=len, reverse=True))
