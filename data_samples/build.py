"""Builds the sample tables of promptmill from the hand-written texts in `source/`.

`python data_samples/build.py` writes `tickets/` and `broken/` beside this file. With one
version of pyarrow the same sources give the same bytes: no clock and no hash order is read,
and the one generator of random numbers has a fixed seed.
"""

import datetime as dt
import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sample_tickets import Ticket, complete_tickets, composed_tickets, read_source

SEED = 20261101

# Rows per day of November 2026. The 1st is a Sunday, and the 2nd catches up with it.
NUM_ROWS = {1: 74, 2: 138, 3: 121, 4: 101}
# Some tickets come a second time, word for word. For the day of the first: the days of the second.
REPEATS = {1: (1, 1, 2, 2, 2), 2: (2, 2, 2, 2, 3, 3, 3), 3: (3, 3, 3, 3, 4, 4, 4), 4: (4, 4, 4)}
# How many tickets come in each hour of the day, as weights.
HOURS = (1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 13, 11, 9, 10, 11, 10, 9, 7, 5, 4, 4, 3, 2, 1)

COLUMNS = (
    ("ticket_id", pa.string()),
    ("created_at", pa.timestamp("us", tz="UTC")),
    ("product", pa.string()),
    ("subject", pa.large_string()),
    ("body", pa.large_string()),
    ("gold_category", pa.string()),
    ("language", pa.string()),
)
TICKETS = pa.schema([pa.field(name, kind, nullable=False) for name, kind in COLUMNS])
BROKEN = pa.schema([pa.field(name, kind, nullable=True) for name, kind in COLUMNS])

# After all tickets, so that a broken row is never mistaken for one of theirs.
BROKEN_AT = dt.datetime(2026, 11, 5, 12, tzinfo=dt.UTC)


def dealt_to_days(tickets: list[Ticket], rng: random.Random) -> dict[int, list[Ticket]]:
    """Return the tickets by day, pinned ones on their day, with room left for the repeats."""
    repeats = list(itertools.chain.from_iterable(REPEATS.values()))
    unpinned = [ticket for ticket in tickets if ticket.day is None]
    free = iter(rng.sample(unpinned, len(unpinned)))
    days: dict[int, list[Ticket]] = {}
    for day, num_rows in NUM_ROWS.items():
        pinned = [ticket for ticket in tickets if ticket.day == day]
        room = num_rows - repeats.count(day) - len(pinned)
        days[day] = pinned + list(itertools.islice(free, room))
    return days


def instant_on(day: int, rng: random.Random) -> dt.datetime:
    """Return an instant of that day, in UTC, within office hours more often than not."""
    (hour,) = rng.choices(range(24), HOURS)
    within = dt.timedelta(microseconds=rng.randrange(3_600_000_000))
    return dt.datetime(2026, 11, day, hour, tzinfo=dt.UTC) + within


def rows_by_day(
    days: dict[int, list[Ticket]], rng: random.Random
) -> dict[int, list[dict[str, Any]]]:
    """Return the rows by day in order of time, repeats included, ids counted from 1 each day."""
    timed = {day: [(instant_on(day, rng), ticket) for ticket in days[day]] for day in days}
    repeats: dict[int, list[tuple[dt.datetime, Ticket]]] = {day: [] for day in days}
    for first, seconds in REPEATS.items():
        # Not the pinned ones, and none so late that its repeat would fall on the next day.
        able = [(at, ticket) for at, ticket in timed[first] if not ticket.day and at.hour < 23]
        for (at, ticket), second in zip(rng.sample(able, len(seconds)), seconds, strict=True):
            soon = at + dt.timedelta(seconds=rng.randrange(20, 3000))
            repeats[second].append((soon if second == first else instant_on(second, rng), ticket))
    rows: dict[int, list[dict[str, Any]]] = {}
    for day in days:
        in_order = sorted(timed[day] + repeats[day], key=lambda pair: pair[0])
        rows[day] = [
            {
                "ticket_id": f"T-202611{day:02}-{number:04}",
                "created_at": at,
                "product": ticket.product,
                "subject": ticket.subject,
                "body": ticket.body,
                "gold_category": ticket.category,
                "language": ticket.language,
            }
            for number, (at, ticket) in enumerate(in_order, 1)
        ]
    return rows


def broken_table() -> pa.Table:
    """Return the rows of `source/broken.yaml`, one a minute; what a row does not name is null."""
    rows = [
        {
            "ticket_id": row.get("ticket_id"),
            "created_at": BROKEN_AT + dt.timedelta(minutes=minute),
            "subject": row.get("subject"),
            "body": "".join(row["body"].replace("{n}", str(n)) for n in range(1, row["repeat"] + 1))
            if "repeat" in row
            else row.get("body"),
        }
        for minute, row in enumerate(read_source("broken.yaml"))
    ]
    return pa.Table.from_pylist(rows, schema=BROKEN)


def not_utf8_table() -> pa.Table:
    """Return the rows of `source/not_utf8.yaml`, whose subject or body is not UTF-8."""
    rows = read_source("not_utf8.yaml")
    known = {
        "ticket_id": pa.array([row["ticket_id"] for row in rows], pa.string()),
        "created_at": pa.array(
            [BROKEN_AT + dt.timedelta(minutes=minute) for minute in range(len(rows))],
            pa.timestamp("us", tz="UTC"),
        ),
        "subject": unchecked([row["subject"].encode("latin-1") for row in rows]),
        "body": unchecked([row["body"].encode("latin-1") for row in rows]),
    }
    columns = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in BROKEN]
    return pa.table(columns, schema=BROKEN)


def unchecked(values: list[bytes]) -> pa.Array:
    """Return the bytes as large_string; Arrow takes buffers at their word."""
    buffers = pa.array(values, pa.large_binary()).buffers()
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers)


def build(folder: Path) -> None:
    """Write `tickets/` and `broken/` below `folder`, over what is there."""
    rng = random.Random(SEED)
    complete = complete_tickets(len(NUM_ROWS))
    num_composed = sum(NUM_ROWS.values()) - sum(map(len, REPEATS.values())) - len(complete)
    tickets = complete + composed_tickets(num_composed, rng)
    tables = {
        f"tickets/2026-11-{day:02}.parquet": pa.Table.from_pylist(rows, schema=TICKETS)
        for day, rows in rows_by_day(dealt_to_days(tickets, rng), rng).items()
    }
    tables |= {
        "broken/rows.parquet": broken_table(),
        "broken/not_utf8.parquet": not_utf8_table(),
    }
    for name, table in tables.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=19,
            write_statistics=["ticket_id", "created_at"],  # those of texts would repeat the texts
        )


if __name__ == "__main__":
    build(Path(__file__).resolve().parent)
