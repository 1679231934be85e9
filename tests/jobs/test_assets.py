"""What a run of a job makes in Dagster, with an engine that echoes."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import jobs.resources
import pipelines.run
from pipelines.run import run
from schemas.errors import EngineDiedError, StoppedByLimitError
from schemas.runs import RunReport
from tests.jobs.dagster_runs import (
    CHECKS,
    current,
    failures,
    metadata_of,
    partitions_made,
    run_job,
    verdicts,
)
from tests.jobs.small_jobs import write_job, write_partitioned_job, write_rows


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
    told = capfd.readouterr().err
    assert (
        "1 of 2 rows were rejected (50.0%: NULL_PROMPT 1); limits.max_rejects allows 10.0%" in told
    )


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
