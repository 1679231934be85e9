"""What Dagster loads: assets, checks and jobs of the job files, and those that are broken."""

import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from jobs.definitions import definitions_of
from jobs.settings import read_settings
from schemas.ids import CODE_VERSION
from tests.jobs.dagster_runs import CHECKS
from tests.jobs.small_jobs import settings_of, write_job, write_partitioned_job

ROOT = Path(__file__).parents[2]
SAMPLES = ("label_tickets", "summarize_tickets")


@pytest.fixture(scope="module")
def samples() -> dg.Definitions:
    """The definitions of promptmill's own two job files."""
    return definitions_of(read_settings({}))


def specs(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    found = definitions.resolve_all_asset_specs()
    return {spec.key.to_user_string(): spec for spec in found}


def names_of_jobs(definitions: dg.Definitions) -> set[str]:
    return {job.name for job in definitions.jobs or ()}


def test_each_sample_job_has_a_plan_its_generations_and_their_lineage(samples):
    shown = {
        key: (
            spec.group_name,
            sorted(dep.asset_key.to_user_string() for dep in spec.deps),
            sorted(spec.kinds),
        )
        for key, spec in specs(samples).items()
    }

    assert shown == {
        f"{name}/{table}": (name, [f"{name}/{one}" for one in above], kinds)
        for name in SAMPLES
        for table, above, kinds in (
            ("plan", [], ["parquet"]),
            ("generations", ["plan"], ["parquet", "vllm"]),
            ("lineage", ["generations"], ["parquet"]),
        )
    }


def test_no_asset_has_a_backfill_policy_and_each_has_the_code_version(samples):
    graph = samples.resolve_asset_graph()

    assert {node.backfill_policy for node in graph.asset_nodes} == {None}
    assert {spec.code_version for spec in specs(samples).values()} == {CODE_VERSION}


def test_only_generations_hold_the_device(samples):
    pools = {
        asset.key.path[-1]: asset.op.pool
        for asset in samples.assets or ()
        if isinstance(asset, dg.AssetsDefinition)
    }

    assert pools == {"plan": None, "generations": "gpu", "lineage": None}


def test_each_sample_job_has_two_blocking_checks_on_its_generations(samples):
    checks = [spec for check in samples.asset_checks or () for spec in check.check_specs]

    assert {(spec.asset_key.to_user_string(), spec.name) for spec in checks} == {
        (f"{name}/generations", check) for name in SAMPLES for check in CHECKS
    }
    assert all(spec.blocking for spec in checks)


def test_each_sample_job_runs_its_assets_and_its_checks(samples):
    for name in SAMPLES:
        job = samples.resolve_job_def(name)

        assert {key.path[-1] for key in job.asset_layer.executable_asset_keys} == {
            *("plan", "generations", "lineage")
        }
        assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} == set(CHECKS)


def test_each_sample_job_has_a_schedule_that_somebody_turns_on(samples):
    schedules = {one.name: one for one in samples.schedules or ()}

    assert {name: one.cron_schedule for name, one in schedules.items()} == {
        "label_tickets_schedule": "30 2 * * *",
        "summarize_tickets_schedule": "0 2 * * *",
    }
    assert {one.default_status for one in schedules.values()} == {dg.DefaultScheduleStatus.STOPPED}


def test_the_columns_of_generations_and_lineage_are_shown(samples):
    def columns(key: str) -> list[str]:
        schema = specs(samples)[f"label_tickets/{key}"].metadata["dagster/column_schema"]
        return [column.name for column in schema.columns]

    assert columns("generations")[:3] == ["row_key", "file", "row"]
    assert columns("lineage")[:3] == ["run_key", "batch_id", "epoch"]


def test_steps_are_processes_of_their_own_one_at_a_time(samples):
    assert samples.executor is not None
    assert samples.executor.name == "multiprocess"
    assert samples.executor.get_config_field is not None
    assert samples.resolve_job_def("label_tickets").executor_def is samples.executor


# ------------------------------------------------------------------------------ broken job files


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sampel": {}}, "unknown key `sampel`"),
        ({"schedule": {"cron": "99 2 * * *"}}, "99 2 * * *"),
        ({"schedule": {"cron": "0 2 * * *", "timezone": "Mars/Base"}}, "no timezone 'Mars/Base'"),
    ],
)
def test_a_broken_job_file_says_why_and_leaves_the_others(tmp_path, changes, expected):
    write_job(tmp_path, "good")
    write_job(tmp_path, "bad", **changes)

    definitions = definitions_of(settings_of(tmp_path))

    assert names_of_jobs(definitions) == {"good"}
    description = specs(definitions)["broken_job_files/bad"].description
    assert description is not None
    assert expected in description


@pytest.mark.parametrize("names", [["a", "a"], ["a,b"], ["../a"], []])
def test_names_that_cannot_be_partitions_break_their_job_alone(tmp_path, names):
    write_job(tmp_path, "good")
    write_partitioned_job(tmp_path, {"named": names}, "bad")

    assert names_of_jobs(definitions_of(settings_of(tmp_path))) == {"good"}


@pytest.mark.parametrize("name", ["input", "config", "class"])
def test_a_name_that_dagster_keeps_for_itself_breaks_its_job_alone(tmp_path, name):
    write_job(tmp_path, "good")
    write_job(tmp_path, name)

    definitions = definitions_of(settings_of(tmp_path))

    assert names_of_jobs(definitions) == {"good"}
    dg.Definitions.validate_loadable(definitions)


def test_a_file_that_is_no_text_leaves_the_others(tmp_path):
    write_job(tmp_path, "good")
    (tmp_path / "jobs" / "odd.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "jobs" / "gone.yaml").symlink_to(tmp_path / "nothing")
    (tmp_path / "jobs" / "folder.yaml").mkdir()

    definitions = definitions_of(settings_of(tmp_path))

    assert names_of_jobs(definitions) == {"good"}
    dg.Definitions.validate_loadable(definitions)


def test_broken_files_whose_names_differ_only_in_odd_characters_are_all_shown(tmp_path):
    for name in ("a b", "a.b", "a-b"):
        write_job(tmp_path, name)

    definitions = definitions_of(settings_of(tmp_path))

    assert len(specs(definitions)) == 3
    dg.Definitions.validate_loadable(definitions)


def test_a_broken_job_fails_with_its_error_when_it_is_materialized(tmp_path):
    write_job(tmp_path, "bad", sampel={})
    definitions = definitions_of(settings_of(tmp_path))

    with pytest.raises(dg.Failure, match="unknown key `sampel`; did you mean `sampling`"):
        dg.materialize(list(definitions.assets or ()))


# -------------------------------------------------------------------------------------- loading


def test_loading_the_definitions_loads_no_model_library():
    heavy = ("torch", "vllm", "transformers", "tokenizers", "polars")
    code = f"import jobs.definitions, sys; print([m for m in {heavy} if m in sys.modules])"

    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert printed.stdout.strip() == "[]"


def test_dagster_yaml_lets_one_run_at_a_time_hold_the_device(tmp_path):
    shutil.copy(ROOT / "dagster.yaml", tmp_path)

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        pools = instance.get_concurrency_config().pool_config

    assert (pools.pool_granularity.value, pools.default_pool_limit) == ("run", 1)


def test_dagster_finds_one_location_in_the_workspace(tmp_path):
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"]

    done = subprocess.run(
        [*command, "--log-format", "json"],
        cwd=ROOT,
        env={"DAGSTER_HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Validation successful for code location promptmill") == 1
    assert done.stdout.count("Validation successful for code location") == 1
