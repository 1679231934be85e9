"""What the checks of a run find, and what they stop."""

import dagster as dg
import pytest

import jobs.checks
from jobs.definitions import definitions_of
from pipelines.audit import AuditReport
from tests.jobs.dagster_runs import (
    CHECKS,
    current,
    partitions_made,
    run_job,
    verdicts,
)
from tests.jobs.small_jobs import NAME, settings_of, write_job, write_partitioned_job, write_rows

GENERATIONS = dg.AssetKey([NAME, "generations"])


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
        ("2 rows of the plan without an outcome: a, b", {CHECKS[0]}),
        # The audit compares no rows then, so nobody knows whether they are complete.
        ("lineage.parquet: differs from the commits", {*CHECKS}),
        ("manifest.json: 3 rows, counted 4", {*CHECKS}),
    ],
)
def test_a_fault_fails_each_check_whose_sentence_it_makes_doubtful(
    tmp_path, instance, model, monkeypatch, fault, failed
):
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

    assert {name for name, passed in verdicts(result).items() if not passed} == failed


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
