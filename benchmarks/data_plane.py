"""How fast rows go through everything but a model: planned, tokenized, answered by echo, committed.

    python -m benchmarks.data_plane [--rows 1000000] [--folder DIR] [--index-rows 10000000]

Prints, for 10,000 rows and for all of them: rows per second of planning
and of the rest, seconds until the engine has its first request, and the peak memory of the
process that did it. Rows are 240 characters, an id and a text, in 20 files; the tokenizer is the
bundled model's. Then it orders a plan's index of `--index-rows` made-up rows and prints its peak.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.settings import read_settings
from jobs.tools import tools_for
from pipelines.attempt import answer
from pipelines.audit import audit
from pipelines.commit import make_current, seal
from pipelines.engines import Engine
from pipelines.ordering import (
    ordered,
    with_first_of_request,
    with_predictions,
    with_repeated_ids,
)
from pipelines.prediction import fixed_lengths
from pipelines.run import expect, make_plan
from pipelines.spool import INDEX
from pipelines.tools import EngineNeed, Tools
from pipelines.trace import trace
from pipelines.work import prepare
from schemas.job_spec import JobSpec, parse_job
from schemas.requests import EngineRequest

WORDS = [
    f"{a}{b}" for a in ("tick", "inv", "par", "print", "log") for b in ("et", "oice", "el", "er")
]
NUM_FILES = 20
FEW_ROWS = 10_000


def write_rows(folder: Path, num_rows: int) -> None:
    """Write `num_rows` rows of about 240 characters in `NUM_FILES` files."""
    dice = random.Random(7)
    folder.mkdir(parents=True)
    for number in range(NUM_FILES):
        ids = [f"{number:02d}-{row:08d}" for row in range(num_rows // NUM_FILES)]
        texts = [" ".join(dice.choices(WORDS, k=48))[:240] for _ in ids]
        table = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
        pq.write_table(table, folder / f"{number:02d}.parquet", row_group_size=50_000)


def peak_mib() -> float:
    """Return the most memory that this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def job_over(folder: Path) -> JobSpec:
    """Return a job over the rows in `folder`."""
    return parse_job(
        {
            "name": "data_plane",
            "input": {"uri": str(folder / "in"), "id_column": "id"},
            "prompt": {"system": "Be brief.", "user": "Summarize: {{ text }}"},
            "model": {"id": "smollm2-135m-instruct"},
            "sampling": {"max_tokens": 16},
            "output": {"uri": str(folder / "out")},
        },
        source="benchmark",
    )


class FirstRequest:
    """Tools whose engines note when they are given their first request."""

    def __init__(self, tools: Tools) -> None:
        """Open the engines that `tools` opens."""
        self._open = tools.open_engine
        self.tools = replace(tools, open_engine=self._opened)
        self.at_s: float | None = None

    def _opened(self, need: EngineNeed) -> Engine:
        engine = self._open(need)
        submit = engine.submit

        def noted(requests: Sequence[EngineRequest]) -> None:
            self.at_s = self.at_s or time.monotonic()
            submit(requests)

        engine.submit = noted  # pyright: ignore[reportAttributeAccessIssue]
        return engine


def measure(folder: Path, num_rows: int) -> None:
    """Run the job over `num_rows` new rows in `folder`, and print the figures.

    Raises:
        SystemExit: a row is missing.
    """
    write_rows(folder / "in", num_rows)
    watch = FirstRequest(tools_for(read_settings(), engine="echo"))
    start = time.monotonic()
    work = prepare(job_over(folder), watch.tools)
    prepared = time.monotonic()
    plan = make_plan(work)
    planned = time.monotonic()
    plan_mib = peak_mib()
    forecast = expect(work, plan.batches)
    work.progress.planned(plan, frozenset(), forecast)
    answer(work, plan, plan.batches, forecast)
    manifest = seal(work.store, plan)
    trace(work.store, manifest)
    make_current(work.output, work.identity.run_key, seen=work.seen_pointer)
    end = time.monotonic()
    print(f"{num_rows:,} rows, prepared in {prepared - start:.1f} s")
    print(f"  first request after {(watch.at_s or end) - start:.1f} s")
    print(f"  plan: {num_rows / (planned - prepared):,.0f} rows/s, peak {plan_mib:.0f} MiB")
    print(f"  answer and commit: {num_rows / (end - planned):,.0f} rows/s")
    print(f"  all: {num_rows / (end - prepared):,.0f} rows/s, peak {peak_mib():.0f} MiB")
    report = audit(work.store)
    if report.faults or report.num_generations != num_rows:
        raise SystemExit(f"audit: {report.num_rows:,} rows, {len(report.faults)} faults")


def order_index(num_rows: int) -> None:
    """Order the index of a made-up plan, and print seconds and the process's peak."""
    dice = np.random.default_rng(7)
    numbers = {
        name: dice.integers(0, 2**63, num_rows, dtype=np.uint64)
        for name in ("key_a", "key_b", "digest_a", "digest_b", "prefix")
    }
    index = pl.DataFrame(
        {
            "chunk": np.arange(num_rows, dtype=np.uint32) // 16384,
            "place": np.arange(num_rows, dtype=np.uint32) % 16384,
            "file_number": np.zeros(num_rows, np.int32),
            **numbers,
            "num_prompt_tokens": dice.integers(20, 400, num_rows, dtype=np.int32),
            "max_output_tokens": np.full(num_rows, 64, np.int32),
            "is_reject": np.zeros(num_rows, bool),
            "is_shareable": np.ones(num_rows, bool),
        }
    ).select(INDEX.keys())
    del numbers
    start, before = time.monotonic(), peak_mib()
    requests = with_first_of_request(with_repeated_ids(index.with_row_index("number")))
    predicted = with_predictions(requests, fixed_lengths("made up"))
    last = ordered(predicted, max_batch_tokens=4 * 1024 * 1024)["batch"][-1]
    print(
        f"an index of {num_rows:,} rows ordered into {last + 1} batches in "
        f"{time.monotonic() - start:.1f} s, peak {peak_mib():.0f} MiB, {before:.0f} before"
    )


def main() -> None:
    """Measure each part in a process of its own, for peaks are a process's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--index-rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=["rows", "index"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only == "index":
        order_index(given.index_rows)
    elif given.only == "rows":
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="promptmill-bench-") as name:
            measure(Path(name), given.rows)
    else:
        folder = [] if given.folder is None else ["--folder", str(given.folder)]
        for part in (
            ["--only", "rows", "--rows", str(min(FEW_ROWS, given.rows)), *folder],
            ["--only", "rows", "--rows", str(given.rows), *folder],
            ["--only", "index", "--index-rows", str(given.index_rows)],
        ):
            subprocess.run([sys.executable, "-m", "benchmarks.data_plane", *part], check=True)


if __name__ == "__main__":
    main()
