"""Runs of a small job in Dagster, in this process, and what they left."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.definitions import definitions_of
from pipelines.ledger import current_run, written_manifest
from pipelines.storage import Store, open_store
from schemas.commits import Manifest
from tests.jobs.small_jobs import NAME, settings_of, write_model

CHECKS = ("every_prompt_is_a_generation_or_a_reject", "the_manifest_matches_the_parts")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model whose tokenizer is real and small, and whose weights nothing loads."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance of Dagster in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run_job(
    folder: Path, instance: dg.DagsterInstance, partition: str | None = None
) -> dg.ExecuteInProcessResult:
    """Run the job of this folder as Dagster does, but in this process."""
    job = definitions_of(settings_of(folder)).resolve_job_def(NAME)
    return job.execute_in_process(partition_key=partition, instance=instance, raise_on_error=False)


def metadata_of(result: dg.ExecuteInProcessResult, table: str) -> Mapping[str, Any]:
    (event,) = result.asset_materializations_for_node(f"{NAME}__{table}")
    return {key: value.value for key, value in event.metadata.items()}


def partitions_made(result: dg.ExecuteInProcessResult) -> list[tuple[str, str | None]]:
    events = result.get_asset_materialization_events()
    made = [event.step_materialization_data.materialization for event in events]
    return [(one.asset_key.path[-1], one.partition) for one in made]


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def current(folder: Path, partition: str = "") -> tuple[Store, Manifest]:
    output = open_store(str(folder / "outputs" / NAME / partition).rstrip("/"))
    store = output.child(current_run(output) or "")
    manifest = written_manifest(store)
    assert manifest is not None
    return store, manifest


def failures(result: dg.ExecuteInProcessResult) -> list[str]:
    events = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return [event.step_failure_data.user_failure_data.description for event in events]
