"""Job files, inputs and settings for tests of what Dagster is told."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from jobs.settings import Settings
from tests.pipelines.conftest import write_tokenizer

TICKETS = Path(__file__).parents[2] / "data_samples" / "tickets"
NAME = "small_job"


def write_job(folder: Path, name: str = NAME, **changes: Any) -> Path:
    """Write a job file: unpartitioned, one column as prompt; `changes` replace its keys."""
    fields: dict[str, Any] = {
        "name": name,
        "input": {"uri": str(folder / "input" / "*.parquet"), "id_column": "id"},
        "prompt": {"column": "text"},
        "model": {"id": "smollm2-135m-instruct"},
        "output": {"uri": str(folder / "outputs" / "{name}" / "{partition}")},
    }
    path = folder / "jobs" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**fields, **changes}))
    return path


def write_partitioned_job(
    folder: Path, partitions: Mapping[str, Any], name: str = NAME, **changes: Any
) -> Path:
    """Write a job file whose input is divided."""
    return write_job(
        folder,
        name,
        input={"uri": str(folder / "input" / "{partition}.parquet"), "id_column": "id"},
        partitions=dict(partitions),
        **changes,
    )


def write_rows(folder: Path, partition: str, texts: Sequence[str | None]) -> None:
    """Write the prompts of one partition; their ids are its name and their number."""
    (folder / "input").mkdir(exist_ok=True)
    ids = [f"{partition}-{number}" for number in range(len(texts))]
    table = pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.large_string())})
    pq.write_table(table, folder / "input" / f"{partition}.parquet")


def write_model(folder: Path) -> dict[str, str]:
    """Write a model folder that has a tokenizer and no weights, and return a job's `model`."""
    write_tokenizer(folder)
    (folder / "model.safetensors").write_bytes(b"weights that nothing loads")
    return {"id": str(folder), "weights": "as_is"}


def copy_tickets(folder: Path) -> Path:
    """Copy the sample tickets, and return the folder that they lie in."""
    return Path(shutil.copytree(TICKETS, folder / "tickets"))


def settings_of(folder: Path) -> Settings:
    """Settings that find the job files written there, with the engine that echoes."""
    return Settings(job_folders=(folder / "jobs",), cache_dir=folder / "cache", engine="echo")
