"""What a run of a job makes in Dagster, with an engine that echoes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import jobs.checks
import jobs.resources
import pipelines.run
from jobs.definitions import definitions_of
from jobs.metadata import run_metadata
from jobs.progress_lines import progress_line
from jobs.resources import ProgressLog
from pipelines.audit import AuditReport
from pipelines.ledger import current_run, written_manifest
from pipelines.run import run
from pipelines.storage import Store, open_store
from schemas.commits import Manifest
from schemas.errors import EngineDiedError, StoppedByLimitError
from schemas.runs import Progress, RunReport
from tests.jobs.small_jobs import (
    NAME,
    settings_of,
    write_job,
    write_model,
    write_partitioned_job,
    write_rows,
)

GENERATIONS = dg.AssetKey([NAME, "generations"])
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


# --------------------------------------------------------------------------------- what is made


def test_the_numbers_of_a_partition_are_those_of_its_manifest(tmp_path, instance, model):
    write_partitioned_job(tmp_path, {"named": ["mon", "tue"]}, model=model)
    write_rows(tmp_path, "mon", ["one", "two", "two", None, ""])

    result = run_job(tmp_path, instance, "mon")

    store, manifest = current(tmp_path, "mon")
    shown = metadata_of(result, "generations")
    lineage = [commit.lineage for commit in manifest.commits]
    assert (shown["num_rows"], shown["num_generations"], shown["num_rejects"]) == (5, 3, 2)
    assert shown["num_generations"] == manifest.num_generations
    assert shown["rejects_by_code"] == manifest.rejects_by_code
    assert shown["num_output_tokens"] == sum(one.num_output_tokens for one in lineage)
    assert shown["num_batches"] == len(manifest.commits)
    assert (shown["run_key"], shown["run_uri"]) == (manifest.run_key, store.uri)


def test_a_run_materializes_its_partition_of_each_asset_and_passes_both_checks(
    tmp_path, instance, model
):
    write_partitioned_job(tmp_path, {"named": ["mon", "tue"]}, model=model)
    write_rows(tmp_path, "mon", ["one", "two"])

    result = run_job(tmp_path, instance, "mon")

    made = [("plan", "mon"), ("generations", "mon"), ("lineage", "mon")]
    assert partitions_made(result) == made
    assert verdicts(result) == dict.fromkeys(CHECKS, True)


def test_a_partition_without_rows_is_materialized_too(tmp_path, instance, model):
    write_partitioned_job(tmp_path, {"named": ["mon"]}, model=model)
    write_rows(tmp_path, "mon", [])

    result = run_job(tmp_path, instance, "mon")

    assert result.success
    assert metadata_of(result, "generations")["num_rows"] == 0
    assert metadata_of(result, "lineage")["num_rows"] == 0
    assert verdicts(result) == dict.fromkeys(CHECKS, True)


def test_the_same_run_again_reuses_every_batch_and_holds_no_device(tmp_path, instance, model):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one", "two"])
    run_job(tmp_path, instance)

    again = metadata_of(run_job(tmp_path, instance), "generations")

    assert again["num_reused_batches"] == again["num_batches"] > 0
    assert again["device_s"] == 0
    assert "tokens_per_s" not in again


def test_the_plan_shows_what_a_run_will_do(tmp_path, instance, model):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one", "two", "two", None])

    shown = metadata_of(run_job(tmp_path, instance), "plan")

    assert (shown["num_rows"], shown["num_requests"], shown["num_shared"]) == (4, 2, 1)
    assert shown["rejects_by_code"] == {"NULL_PROMPT": 1}
    assert shown["num_prompt_tokens"] > 0


def test_lineage_is_rebuilt_from_the_commits_where_it_is_gone(tmp_path, instance, model):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one", "two"])
    run_job(tmp_path, instance)
    store, _ = current(tmp_path)
    store.delete("lineage.parquet")

    shown = metadata_of(run_job(tmp_path, instance), "lineage")

    assert store.exists("lineage.parquet")
    assert shown["lineage_uri"] == f"{store.uri}/lineage.parquet"


def test_each_attempt_names_the_dagster_run_that_made_it(tmp_path, instance, model):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one"])

    result = run_job(tmp_path, instance)

    store, _ = current(tmp_path)
    assert json.loads(store.get("attempts/0001.json"))["dagster_run_id"] == result.run_id


def test_more_rejects_than_allowed_are_a_warning_and_no_failure(tmp_path, instance, model, capfd):
    write_job(tmp_path, model=model, limits={"max_rejects": 0.1})
    write_rows(tmp_path, "all", ["one", None])

    result = run_job(tmp_path, instance)

    assert result.success
    assert "1 of 2 rows were rejected, more than limits.max_rejects = 0.1" in capfd.readouterr().err


# ------------------------------------------------------------------------------------- failures


def test_an_absent_input_fails_in_one_line_and_is_not_tried_again(tmp_path, instance, model):
    write_partitioned_job(tmp_path, {"named": ["mon", "tue"]}, model=model)
    write_rows(tmp_path, "mon", ["one"])

    result = run_job(tmp_path, instance, "tue")

    assert partitions_made(result) == []
    assert "tue.parquet" in failures(result)[0]
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def run_that_raises(
    error: Exception, times: int, folder: Path, instance: dg.DagsterInstance, monkeypatch: Any
) -> dg.ExecuteInProcessResult:
    """Run the job, where answering raises `error` so many times before it goes well."""
    tries = iter([error] * times)

    def raises_first(*arguments: Any, **named: Any) -> RunReport:
        if (raised := next(tries, None)) is not None:
            raise raised
        return run(*arguments, **named)

    monkeypatch.setattr(jobs.resources, "RETRY_WAIT_S", 0.0)
    monkeypatch.setattr(pipelines.run, "run", raises_first)
    return run_job(folder, instance)


def num_retries(result: dg.ExecuteInProcessResult) -> int:
    return sum(event.event_type_value == "STEP_RESTARTED" for event in result.all_events)


def test_an_engine_that_died_is_tried_again(tmp_path, instance, model, monkeypatch):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one"])
    error = EngineDiedError("killed by signal 9")

    result = run_that_raises(error, 2, tmp_path, instance, monkeypatch)

    assert (result.success, num_retries(result)) == (True, 2)


def test_an_engine_that_goes_on_dying_fails_with_what_it_died_of(
    tmp_path, instance, model, monkeypatch
):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one"])
    error = EngineDiedError("killed by signal 9")

    result = run_that_raises(error, 9, tmp_path, instance, monkeypatch)

    assert failures(result) == ["killed by signal 9"]
    assert num_retries(result) == 2


@pytest.mark.parametrize("error", [StoppedByLimitError("$25 are spent"), TypeError("a bug")])
def test_what_would_go_wrong_again_is_not_tried_again(
    tmp_path, instance, model, monkeypatch, error
):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one"])

    result = run_that_raises(error, 1, tmp_path, instance, monkeypatch)

    assert (result.success, num_retries(result)) == (False, 0)


# --------------------------------------------------------------------------------------- checks


def test_a_flipped_byte_fails_the_check_of_the_parts_and_stops_the_lineage(
    tmp_path, instance, model
):
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one", "two"])
    run_job(tmp_path, instance)
    store, manifest = current(tmp_path)
    key = manifest.commits[0].parts[0].key
    content = bytearray(store.get(key))
    content[len(content) // 2] ^= 1
    store.put(key, bytes(content))

    result = run_job(tmp_path, instance)

    found = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert not found["the_manifest_matches_the_parts"].passed
    assert found["the_manifest_matches_the_parts"].description == (
        f"{key}: bytes differ from those that were committed"
    )
    assert [table for table, _ in partitions_made(result)] == ["plan", "generations"]


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("2 rows of the plan without an outcome: a, b", CHECKS[0]),
        ("lineage.parquet: differs from the commits", CHECKS[1]),
        ("manifest.json: 3 rows, counted 4", CHECKS[1]),
    ],
)
def test_each_check_fails_for_its_own_faults(tmp_path, instance, model, monkeypatch, fault, failed):
    report = AuditReport(
        run_uri="/out/run1",
        faults=(fault,),
        num_rows=3,
        num_generations=2,
        num_rejects=1,
        num_parts=1,
        num_bytes=99,
        is_input_checked=True,
    )
    monkeypatch.setattr(jobs.checks, "audit", lambda _store: report)
    write_job(tmp_path, model=model)
    write_rows(tmp_path, "all", ["one", "two"])

    result = run_job(tmp_path, instance)

    assert [name for name, passed in verdicts(result).items() if not passed] == [failed]


def test_a_check_shows_numbers_and_its_partition(tmp_path, instance, model):
    write_partitioned_job(tmp_path, {"named": ["mon", "tue"]}, model=model)
    write_rows(tmp_path, "mon", ["one", None])

    found = run_job(tmp_path, instance, "mon").get_asset_check_evaluations()

    for one in found:
        shown = {key: value.value for key, value in one.metadata.items()}
        assert (shown["num_rows"], shown["num_generations"], shown["num_rejects"]) == (2, 1, 1)
        assert (shown["num_faults"], one.partition) == (0, "mon")
        assert shown["num_bytes"] > 0


def test_a_check_of_what_was_never_made_says_what_to_do(tmp_path, instance, model):
    write_job(tmp_path, model=model)
    definitions = definitions_of(settings_of(tmp_path))

    with pytest.raises(dg.Failure, match="materialize small_job/generations first"):
        dg.materialize(
            [*(definitions.assets or ()), *(definitions.asset_checks or ())],
            resources=dict(definitions.resources or {}),
            selection=dg.AssetSelection.checks_for_assets(GENERATIONS),
            instance=instance,
        )


# ------------------------------------------------------------------------- metadata and progress


REPORT = RunReport(
    run_key="run1-0",
    run_uri="/out/run1-0",
    num_rows=4,
    num_generations=3,
    num_rejects=1,
    rejects_by_code={"NULL_PROMPT": 1},
    num_requests=3,
    num_batches=2,
    num_reused_batches=0,
    num_prompt_tokens=40,
    num_cached_tokens=10,
    num_output_tokens=20,
    load_s=3.0,
    generate_s=2.0,
    wall_s=6.0,
    device_s=5.0,
    usd=0.01,
    output_tokens_per_s=10.0,
    total_tokens_per_s=30.0,
    run_device_s=5.0,
    run_usd=0.02,
)


def test_the_numbers_of_a_run_are_flat_so_that_dagster_plots_them():
    shown = run_metadata(REPORT)

    numbers = {key for key, value in shown.items() if isinstance(value, int | float)}
    assert set(shown) - numbers == {"run_key", "run_uri", "rejects_by_code"}
    assert (shown["cached_fraction"], shown["tokens_per_s"]) == (0.25, 30.0)


def test_a_line_of_progress_says_where_the_run_is_how_fast_and_what_it_cost():
    progress = Progress(
        phase="generate",
        num_rows=3100,
        num_rows_total=31000,
        num_batches=12,
        num_batches_total=80,
        tokens_per_s=2350.4,
        ttft_s=0.12,
        tpot_s=0.028,
        usd=0.42,
        eta_s=360.0,
    )

    assert progress_line(progress) == (
        "batch 12/80 · 3,100 rows · TTFT 120 ms · TPOT 28 ms · 2,350 tok/s · $0.42 · 6 min left"
    )


def test_a_line_of_progress_leaves_out_what_is_not_known():
    progress = Progress(phase="generate", num_rows=0, num_rows_total=9, num_batches_total=1)

    assert progress_line(progress) == "batch 0/1 · 0 rows"


def test_progress_is_logged_every_thirty_seconds_and_at_every_change_of_phase():
    lines: list[str] = []
    times = iter([0.0, 1.0, 29.0, 31.0, 32.0])
    log = ProgressLog(lines.append, clock=lambda: next(times))

    for phase, num_rows in (
        ("load", 0),
        ("generate", 1),
        ("generate", 2),
        ("generate", 3),
        ("generate", 4),
    ):
        log(Progress(phase=phase, num_rows=num_rows, num_rows_total=9))

    assert [line.split(" · ")[-1] for line in lines] == ["0 rows", "1 rows", "3 rows"]
