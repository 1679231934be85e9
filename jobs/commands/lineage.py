"""`promptmill lineage`: what every batch of a run took and cost, and that the bill adds up."""

import dataclasses
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending
from jobs.commands.texts import count, grid, pairs, rate, seconds, usd

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.bill import Bill
    from schemas.lineage import BatchLineage

_COLUMNS = (
    *("batch", "epoch", "rows", "rejects", "prompt", "cached", "output"),
    *("device-seconds", "USD", "tok/s", "TTFT p50", "TPOT p50"),
)


def show_lineage(uri: str) -> Ending:
    """Return the bill of the run at `uri`, or of the current run of the output there.

    Raises:
        SettingsError: there is no run.
        VerificationError: its records are damaged.
    """
    from pipelines.bill import bill_of
    from pipelines.reading import run_in
    from pipelines.storage import open_store

    bill = bill_of(run_in(open_store(uri)))
    return Ending(fields=dataclasses.asdict(bill), show=lambda console: _show(console, bill))


def _show(console: "Console", bill: "Bill") -> None:
    console.print(grid(_COLUMNS, [_row(batch) for batch in bill.batches]))
    console.print(pairs("device-seconds", _totals(bill)))
    if not bill.is_finished:
        console.print("not finished: only committed batches are shown")
    console.print(f"run: {bill.run_uri}", soft_wrap=True)


def _row(batch: "BatchLineage") -> list[str]:
    return [
        batch.batch_id,
        str(batch.epoch),
        count(batch.num_rows),
        count(batch.num_rejects),
        count(batch.num_prompt_tokens),
        count(batch.num_cached_tokens),
        count(batch.num_output_tokens),
        f"{batch.device_s:.2f}",
        usd(batch.usd),
        rate(batch.tokens_per_s).removesuffix(" tok/s"),
        seconds(batch.ttft_p50_s),
        seconds(batch.tpot_p50_s),
    ]


def _totals(bill: "Bill") -> list[tuple[str, str]]:
    rows = [
        ("batches", f"{bill.batches_s:.3f}  ({usd(bill.batches_usd)})"),
        ("+ wasted (lost races, unfinished batches)", f"{bill.wasted_s:.3f}"),
        ("+ load", f"{bill.load_s:.3f}"),
        ("+ idle", f"{bill.idle_s:.3f}"),
        (f"= held by {len(bill.attempts)} attempts", f"{bill.held_s:.3f}  ({usd(bill.held_usd)})"),
        ("difference", f"{bill.difference_s:+.6f}"),
    ]
    if bill.num_attempts_without_bill:
        told = f"{bill.unbilled_s:.3f}  ({bill.num_attempts_without_bill} attempts were killed)"
        rows.append(("batches without a bill", told))
    return rows
