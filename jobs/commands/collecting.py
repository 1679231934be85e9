"""`promptmill gc`: what lies at an output that nobody will read, and its removal."""

import dataclasses
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending
from jobs.commands.texts import count, grid, size
from schemas.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.collect import Collection

_COLUMNS = ("run", "state", "objects", "size", "orphans", "orphans' size")


def collect_output(uri: str, *, is_deleting: bool, superseded: bool) -> Ending:
    """List the runs at the output `uri`; delete what nobody will read, where asked for.

    Raises:
        SettingsError: there is no run, or `superseded` without deleting.
    """
    from pipelines.collect import collect, survey
    from pipelines.storage import open_store

    if superseded and not is_deleting:
        raise SettingsError("--superseded says what --delete takes too; give both")
    output = open_store(uri)
    found = collect(output, superseded=superseded) if is_deleting else survey(output)
    return Ending(
        fields=dataclasses.asdict(found),
        show=lambda console: _show(console, found, is_deleting=is_deleting),
    )


def _show(console: "Console", found: "Collection", *, is_deleting: bool) -> None:
    rows = [
        (
            run.run_key,
            run.state,
            count(run.num_objects),
            size(run.num_bytes),
            count(len(run.orphans)),
            size(run.num_orphan_bytes),
        )
        for run in found.runs
    ]
    console.print(grid(_COLUMNS, rows, num_texts=2))
    for run in found.runs:
        for key in run.orphans:
            console.print(f"orphan: {run.run_key}/{key}", soft_wrap=True)
    if is_deleting:
        whole = f", {len(found.deleted_runs)} superseded runs whole" if found.deleted_runs else ""
        told = f"deleted: {count(found.num_deleted)} objects, {size(found.num_deleted_bytes)}"
        console.print(told + whole)
    else:
        console.print(
            "nothing was deleted; --delete takes the orphans of finished runs, with --superseded "
            "also finished runs that are not current",
            soft_wrap=True,
        )
