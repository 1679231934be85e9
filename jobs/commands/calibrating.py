"""`promptmill lineage --calibration`: predicted output tokens beside those that came."""

import dataclasses
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending
from jobs.commands.texts import count, grid

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.calibration import Calibrated, Calibration

_COLUMNS = (
    *("prompt tokens", "requests", "predicted mean", "actual mean", "actual p50", "actual p90"),
    *("mean abs. error", "bias", "above predicted p90"),
)


def show_calibration(uri: str) -> Ending:
    """Return the calibration of the run at `uri`, or of the current run of the output there.

    Raises:
        SettingsError: there is no run.
        VerificationError: it has no plan, or is damaged.
    """
    from pipelines.calibration import calibration_of
    from pipelines.reading import run_in
    from pipelines.storage import open_store

    found = calibration_of(run_in(open_store(uri)))
    return Ending(fields=dataclasses.asdict(found), show=lambda console: _show(console, found))


def _show(console: "Console", found: "Calibration") -> None:
    rows = [
        _row(f"{one.min_prompt_tokens:,} to {one.max_prompt_tokens:,}", one)
        for one in found.buckets
    ]
    if found.total is not None:
        rows.append(_row("all", found.total))
    console.print(grid(_COLUMNS, rows))
    console.print("output tokens per request; bias is predicted minus actual")
    console.print(f"predicted from: {found.basis}", soft_wrap=True)
    console.print(f"run: {found.run_uri}", soft_wrap=True)


def _row(name: str, one: "Calibrated") -> list[str]:
    return [
        name,
        count(one.num_requests),
        f"{one.predicted_mean:.1f}",
        f"{one.actual_mean:.1f}",
        f"{one.actual_p50:.0f}",
        f"{one.actual_p90:.0f}",
        f"{one.mean_absolute_error:.1f}",
        f"{one.bias:+.1f}",
        f"{one.above_p90_fraction:.0%}",
    ]
