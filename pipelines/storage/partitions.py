"""Which partitions lie at a URI that names them."""

import re
from collections.abc import Callable

from pipelines.storage.opening import open_store
from pipelines.storage.store import Store

HOLE = "{partition}"
"""What stands in a URI for the name of a partition."""


def stored_partitions(
    uri: str, open_folder: Callable[[str], Store] = open_store
) -> tuple[str, ...]:
    """Return the partitions that lie at this URI, sorted; none where it is not listable.

    Looks only at the names in the folder around the first `{partition}`.
    """
    before, _, after = uri.partition(HOLE)
    folder, slash, start = before.rpartition("/")
    if re.search(r"[*?]", before):
        return ()
    rest = after.partition("/")[0]
    pattern = re.compile(f"{re.escape(start)}(.+){_as_expression(rest)}")
    names = open_folder((folder or slash) or ".").list_names("")
    found = [pattern.fullmatch(name.removesuffix("/")) for name in names]
    return tuple(sorted({match[1] for match in found if match}))


def _as_expression(pattern: str) -> str:
    signs = {"*": ".*", "?": "."}
    return "".join(signs.get(character, re.escape(character)) for character in pattern)
