"""`promptmill verify`: whether a run on storage is what its manifest says."""

import dataclasses
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending, printable
from jobs.commands.texts import count, pairs, size
from schemas.errors import VerificationError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.audit import AuditReport


def verify_run(uri: str) -> Ending:
    """Audit the run at `uri`, or the current run of the output there.

    Raises:
        SettingsError: there is no run.
        VerificationError: it is not finished, or its records are damaged.
    """
    from pipelines.audit import audit
    from pipelines.reading import run_in
    from pipelines.storage import open_store

    report = audit(run_in(open_store(uri)))
    fault = None
    if report.faults:
        fault = VerificationError(f"{len(report.faults)} faults in {report.run_uri}")
    return Ending(
        fields={**dataclasses.asdict(report), "num_faults": len(report.faults)},
        show=lambda console: _show(console, report),
        fault=fault,
    )


def _show(console: "Console", report: "AuditReport") -> None:
    checked = "the plan and the input" if report.is_input_checked else "the plan; the input changed"
    rows = [
        ("rows", count(report.num_rows)),
        ("generations", count(report.num_generations)),
        ("rejects", count(report.num_rejects)),
        ("parts", f"{count(report.num_parts)}, {size(report.num_bytes)}"),
        ("row keys against", checked),
        ("faults", count(len(report.faults))),
    ]
    console.print(pairs("audit", rows))
    for fault in report.faults:
        console.print(f"fault: {printable(fault)}", soft_wrap=True)
    if not report.faults:
        console.print(f"sound: {report.run_uri}", soft_wrap=True)
