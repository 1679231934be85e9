"""`promptmill lineage`: what every batch of a run took and cost, and that the bill adds up."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending
from jobs.commands.texts import count, grid, of_limit, percent, rate, seconds, usd

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.bill import Bill
    from schemas.lineage import BatchLineage

_COLUMNS = (
    *("batch", "epoch", "rows", "rejects", "prompt", "cached", "output"),
    *("device-seconds", "USD", "tok/s", "TTFT p50", "TPOT p50", "of limit", "bound by"),
)
_PARTS = ("", "device-seconds", "USD")


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
    fields = {
        **dataclasses.asdict(bill),
        "difference_s": bill.device_s.difference,
        "difference_usd": bill.usd.difference,
    }
    return Ending(fields=fields, show=lambda console: _show(console, bill))


def _show(console: "Console", bill: "Bill") -> None:
    console.print(grid(_COLUMNS, [_row(batch) for batch in bill.batches]))
    console.print(grid(_PARTS, _parts(bill)))
    for line in _said(bill):
        console.print(line, soft_wrap=True)
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
        percent(batch.fraction_of_limit),
        batch.bound_by or "-",
    ]


def _parts(bill: "Bill") -> list[list[str]]:
    """Return a line for each part of what devices were held, and for their sum."""
    names = {
        "batches": "batches",
        "wasted": "+ wasted (lost races, unfinished batches)",
        "load": "+ load",
        "idle": "+ idle",
        "tail_idle": "+ tail idle (after the last request had gone in)",
        "held": f"= held by {len(bill.attempts)} attempts",
        "difference": "difference",
    }
    rows: list[list[str]] = []
    for name, told in names.items():
        device_s, paid = getattr(bill.device_s, name), getattr(bill.usd, name)
        is_check = name == "difference"
        number = f"{device_s:+.6f}" if is_check else f"{device_s:.3f}"
        rows.append([told, number, f"{paid:+.6f}" if is_check else usd(paid)])
    return rows


def _said(bill: "Bill") -> Iterator[str]:
    """Yield what the sums do not say."""
    if bill.fraction_of_limit is not None:
        yield f"of the device's limit: {of_limit(bill.fraction_of_limit)} in engine steps"
    if bill.num_partly_known:
        yield (
            f"{bill.num_partly_known} attempts left no end record (killed, or still running): "
            "counted up to their last commit, what they held after it is not known"
        )
    if bill.num_unknown:
        yield f"{bill.num_unknown} attempts left no end and no commit: what they held is not known"
    for fault in bill.faults:
        yield f"damaged: {fault}"
