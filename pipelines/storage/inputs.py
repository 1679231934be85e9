"""The Parquet files that a job file points at."""

import re
from collections.abc import Callable, Iterator, Mapping

from pipelines.storage.keys import key_fault
from pipelines.storage.opening import open_location
from pipelines.storage.secrets import scrubbed
from pipelines.storage.store import Names, Store
from pipelines.storage.uris import Location, parse_uri
from schemas.errors import SettingsError
from schemas.names import nearest

_SUFFIX = ".parquet"
_NOT_HIDDEN = "(?![._])"
_MAX_NAMES_SHOWN = 8


def expand_input(
    uri: str, *, options: Mapping[str, str] | None = None, deadline_s: float = 120.0
) -> tuple[Store, Names]:
    """Return a store and, sorted, the keys in it of the Parquet files that `uri` names.

    `uri` is one file, whatever its name; a folder, for all `*.parquet` in it and below; or a
    pattern: `*` and `?` within one name, `**` for any number of folders. Names that begin with
    `.` or `_` (`_SUCCESS`, `_temporary/`) are found only where the pattern spells that out.

    Raises:
        SettingsError: there is no such file; the message says what is there instead.
    """
    base, patterns = _split_at_pattern(uri)
    location = parse_uri(base)

    def opened(place: Location) -> Store:
        return open_location(place, options=options or {}, deadline_s=deadline_s)

    store = opened(location)
    around = location.split()
    if not patterns and around and not uri.endswith("/"):
        folder, name = opened(around[0]), around[1]
        if folder.exists(name):
            return folder, _checked(folder, [name])
    keys = sorted(set(_matching(store, "", patterns) if patterns else _below(store, "")))
    if not keys:
        wanted = patterns[0] if patterns else ""
        raise SettingsError(
            f"no Parquet file at {scrubbed(uri)}\n"
            "  expected: one file, a folder with *.parquet in it or below, or a pattern with "
            f"`*`, `?`, `**`\n  {_what_is_there(location, wanted, opened)}"
        )
    return store, _checked(store, keys)


def _split_at_pattern(uri: str) -> tuple[str, Names]:
    """Return what stands before the first name with `*` or `?`, and the names from there on."""
    scheme, separator, path = uri.rpartition("://")
    names = path.split("/")
    first = next((at for at, name in enumerate(names) if "*" in name or "?" in name), None)
    if first is None:
        return uri, []
    if re.search(r"\?[^/]*=", path):
        raise SettingsError(f"{scrubbed(uri)}: a URL with a query is not an input")
    patterns = names[first:]
    if any(name in {"", ".", ".."} for name in patterns):
        raise SettingsError(f"{uri}: after a `*` there is no empty name, `.` or `..`")
    is_at_root = path.startswith("/") and first == 1
    before = "/" if is_at_root else "/".join(names[:first])
    return scheme + separator + before or ".", patterns


def _matching(store: Store, folder: str, patterns: Names) -> Iterator[str]:
    """Yield the keys below `folder` that match; only folders that match are looked into."""
    here, rest = patterns[0], patterns[1:]
    if here == "**":
        whole = re.compile(_expression(patterns))
        start = len(folder) + 1 if folder else 0
        keys = (stored.key for stored in store.list(folder))
        yield from (key for key in keys if whole.fullmatch(key[start:]))
        return
    one = re.compile(_expression([here]))
    for name in store.list_names(folder):
        bare = name.removesuffix("/")
        key = f"{folder}/{bare}" if folder else bare
        if not one.fullmatch(bare):
            continue
        if name.endswith("/"):
            yield from _matching(store, key, rest) if rest else _below(store, key)
        elif not rest:
            yield key


def _expression(patterns: Names) -> str:
    """Return the regular expression of a path of one name per pattern."""
    some = f"{_NOT_HIDDEN}[^/]+"
    parts: Names = []
    for pattern in patterns[:-1]:
        parts.append(f"(?:{some}/)*" if pattern == "**" else f"{_name_expression(pattern)}/")
    last = patterns[-1]
    is_any = last == "**"
    parts.append(f"(?:{some}/)*{some}{re.escape(_SUFFIX)}" if is_any else _name_expression(last))
    return "".join(parts)


def _name_expression(pattern: str) -> str:
    signs = {"*": "[^/]*", "?": "[^/]"}
    body = "".join(signs.get(character, re.escape(character)) for character in pattern)
    return (_NOT_HIDDEN if pattern[0] in signs else "") + body


def _below(store: Store, folder: str) -> Iterator[str]:
    yield from _matching(store, folder, ["**"])


def _checked(store: Store, keys: Names) -> Names:
    for key in keys:
        if fault := key_fault(key):
            raise SettingsError(
                f"{store.uri}: the file {key[:200]!r} cannot be an input: {fault}\n  rename it"
            )
    return keys


def _what_is_there(location: Location, wanted: str, opened: Callable[[Location], Store]) -> str:
    """Return what lies at `location`, or in the nearest folder above it that holds something."""
    try:
        names = opened(location).list_names("")
    except SettingsError as error:  # a hint is not worth an error about the hint
        return f"what is there cannot be listed: {error}"
    above = location.split()
    if not names and above:
        return _what_is_there(above[0], above[1], opened)
    if not names:
        return f"found in {location.uri}: nothing"
    shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + (", …" if len(names) > _MAX_NAMES_SHOWN else "")
    bare = [name.removesuffix("/") for name in names]
    hint = nearest(wanted, bare) if wanted else ""
    close = hint if hint.startswith("; did") else ""  # else it repeats every name
    return f"found in {location.uri}: {len(names)} names: {shown}{close}"
