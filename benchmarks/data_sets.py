"""Texts to measure with: public test sets, where they lie, and the words of the sample tickets."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
SPECIAL = re.compile(r"<\||\|>|<[a-z_]+>")


class DataMissingError(Exception):
    """A workload's data set is not on this machine; the message says which and where."""


def data_set(file: str, num_rows: int) -> list[dict[str, str]]:
    """Return the first rows of a data set.

    Raises:
        DataMissingError: it is not here, or has fewer rows.
    """
    folder = Path(os.environ.get("PROMPTMILL_BENCH_DATA", ROOT.parent / "shared" / "data"))
    path = folder / file
    if not path.is_file():
        raise DataMissingError(f"{path} is not there; name its folder in PROMPTMILL_BENCH_DATA")
    rows = pq.read_table(path, use_threads=False).slice(0, num_rows).to_pylist()
    if len(rows) < num_rows:
        raise DataMissingError(f"{path} has {len(rows)} rows, {num_rows} were asked for")
    return rows


def ticket_words() -> Iterator[str]:
    """Yield the words of the sample tickets, again and again.

    Without those that look like special tokens (`<|im_end|>`): to promptmill they are text, to
    whoever gives vLLM a string they are the tokens, and the prompts would differ.
    """
    paths = sorted((ROOT / "data_samples" / "tickets").glob("*.parquet"))
    tables = [pq.read_table(path, columns=["body"], use_threads=False) for path in paths]
    words = [
        word
        for table in tables
        for body in table["body"].to_pylist()
        for word in body.split()
        if not SPECIAL.search(word)
    ]
    while True:
        yield from words
