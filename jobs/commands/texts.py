"""Numbers and tables as people read them."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from schemas.forecasts import Forecast


def count(number: int) -> str:
    """Return 1234567 as 1,234,567."""
    return f"{number:,}"


def seconds(number: float | None) -> str:
    """Return a duration, such as 250 ms, 4.2 s, 3 min 20 s, 2 h 5 min; `-` where not known."""
    if number is None:
        return "-"
    if 0 < number < 1:
        return f"{number * 1000:.0f} ms"
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def usd(number: float | None) -> str:
    """Return a price with the digits that matter: $12.34, $0.0042; `-` where not known."""
    if number is None:
        return "-"
    return f"${number:,.2f}" if number >= 1 or number == 0 else f"${number:.4f}"


def rate(number: float | None) -> str:
    """Return tokens per second; `-` where not known."""
    return "-" if number is None else f"{number:,.0f} tok/s"


def off(fraction: float | None) -> str:
    """Return by how much something missed what was expected, such as +12 %; `-`: not known."""
    return "-" if fraction is None else f"{fraction:+.0%}".replace("%", " %")


def percent(fraction: float | None, why: str | None = None) -> str:
    """Return 0.473 as 47.3 %, with `why` in brackets; `-` where not known."""
    if fraction is None:
        return "-"
    return f"{fraction:.1%}".replace("%", " %") + (f"  ({why})" if why else "")


def of_limit(fraction: float | None, bound_by: str | None = None) -> str:
    """Return the share of a device's limit, and what bound it; nothing goes beyond a true limit."""
    if fraction is not None and fraction > 1:
        return percent(fraction, "so the limit is too low: it was measured beside other work")
    return percent(fraction, bound_by)


def size(number: int) -> str:
    """Return bytes as B, KiB, MiB, GiB or TiB."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def codes(rejects: Mapping[str, int]) -> str:
    """Return reject codes with their counts, the most frequent first."""
    in_order = sorted(rejects.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{code} {number:,}" for code, number in in_order)


def pairs(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False, box=box.SIMPLE)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, num_texts: int = 1) -> Table:
    """Return a table with a header; the first `num_texts` columns are text, the rest numbers."""
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(columns):
        justify = "left" if place < num_texts else "right"
        table.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def told(forecast: Forecast) -> list[str]:
    """Return a forecast as lines: what is expected, by what, and a limit that will end it."""
    if forecast.seconds is None:
        return [f"predicted: not known, {forecast.basis}"]
    took = f"{seconds(forecast.low_s)} to {seconds(forecast.high_s)}"
    cost = f"{usd(forecast.low_usd)} to {usd(forecast.high_usd)}"
    lines = [
        f"predicted: {seconds(forecast.seconds)} ({took}), {usd(forecast.usd)} ({cost})",
        f"by: {forecast.basis}",
    ]
    return lines if forecast.warning is None else [*lines, f"warning: {forecast.warning}"]
