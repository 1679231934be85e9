"""Runs by the echo engine, for tests of what reads them."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.engines import EchoEngine
from pipelines.run import run
from pipelines.storage import Store, open_store
from pipelines.tools import Tools
from schemas.checkpoints import Checkpoint
from schemas.job_spec import JobSpec
from schemas.runs import RunReport


@dataclass(frozen=True)
class EchoRunner:
    """Runs jobs with one checkpoint and the engine that answers with the prompt's last tokens."""

    checkpoint: Checkpoint
    max_model_len: int = 128
    tokens_per_s: float = 0.0

    def __call__(self, job: JobSpec, *, limit: int | None = None) -> RunReport:
        tools = Tools(
            checkpoint=lambda _job: self.checkpoint,
            context_length=lambda _job, _checkpoint: self.max_model_len,
            open_engine=lambda need: EchoEngine(
                max_model_len=need.context_length, tokens_per_s=self.tokens_per_s
            ),
            engine="echo",
        )
        return run(job, tools, limit=limit)


def run_store(report: RunReport) -> Store:
    return open_store(report.run_uri)


def rows(path: Path, columns: dict[str, object]) -> None:
    """Write columns as one Parquet file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
