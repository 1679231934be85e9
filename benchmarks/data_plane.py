"""How fast rows go through everything but a model: the echo engine answers at once.

    python benchmarks/data_plane.py [--rows 1000000] [--folder DIR]

Prints rows per second of planning and of the rest, and the peak memory of the process. Rows are
240 characters, an id and a text, in 20 files; the tokenizer is the bundled model's.
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.settings import read_settings
from jobs.tools import tools_for
from pipelines.attempt import answer
from pipelines.audit import audit
from pipelines.commit import make_current, seal
from pipelines.run import expect, make_plan
from pipelines.trace import trace
from pipelines.work import prepare
from schemas.job_spec import parse_job

WORDS = [
    f"{a}{b}" for a in ("tick", "inv", "par", "print", "log") for b in ("et", "oice", "el", "er")
]
NUM_FILES = 20


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


def main() -> None:
    """Write the rows, run the job over them, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="promptmill-bench-") as name:
        folder = Path(name)
        write_rows(folder / "in", given.rows)
        job = parse_job(
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
        work = prepare(job, tools_for(read_settings(), engine="echo"))
        print(f"before: {peak_mib():.0f} MiB")
        start = time.monotonic()
        plan = make_plan(work)
        planned = time.monotonic()
        print(f"plan: {given.rows / (planned - start):,.0f} rows/s, peak {peak_mib():.0f} MiB")
        forecast = expect(work, plan.batches)
        work.progress.planned(plan, frozenset(), forecast)
        answer(work, plan, plan.batches, forecast)
        manifest = seal(work.store, plan)
        trace(work.store, manifest)
        make_current(work.output, work.identity.run_key, seen=work.seen_pointer)
        end = time.monotonic()
        print(f"answer and commit: {given.rows / (end - planned):,.0f} rows/s")
        print(f"all: {given.rows / (end - start):,.0f} rows/s, peak {peak_mib():.0f} MiB")
        report = audit(work.store)
        print(f"audit: {report.num_rows:,} rows, {len(report.faults)} faults")
        if report.faults or report.num_generations != given.rows:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
