"""Several jobs and partitions in one command."""

import pytest

import jobs.openers
from pipelines.engines import EchoEngine
from tests.jobs.command_line import TEXTS, told
from tests.jobs.small_jobs import NAME, write_partitioned_job, write_rows


@pytest.fixture
def days(promptmill):
    """A daily job with input for the first, the second and the fourth of November."""
    write_rows(promptmill.folder, "2026-11-02", TEXTS[:2])
    write_rows(promptmill.folder, "2026-11-04", TEXTS[:1])
    model = {"id": str(promptmill.folder / "model"), "weights": "as_is"}
    write_partitioned_job(promptmill.folder, {"daily": {"start": "2026-11-01"}}, model=model)
    return promptmill


@pytest.fixture
def opened(monkeypatch):
    """The engines that are started."""
    engines = []

    def open_engine(**fields):
        engines.append(EchoEngine(**fields))
        return engines[-1]

    monkeypatch.setattr(jobs.openers, "EchoEngine", open_engine)
    return engines


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (("2026-11-04", "2026-11-01"), ["2026-11-04", "2026-11-01"]),
        (("2026-11-01..2026-11-02",), ["2026-11-01", "2026-11-02"]),
        (("2026-11-02..",), ["2026-11-02", "2026-11-04"]),
        (("..",), ["2026-11-01", "2026-11-02", "2026-11-04"]),
    ],
    ids=["one by one", "a range", "from one on", "all"],
)
def test_partitions_run_one_after_the_other_with_one_engine(days, opened, partitions, expected):
    options = [word for one in partitions for word in ("--partition", one)]

    result = days("run", NAME, *options, "--json")
    runs = told(result)["runs"]

    assert result.exit_code == 0
    assert [run["partition"] for run in runs] == expected
    assert [run["num_rows"] for run in runs] == [
        {"2026-11-01": 5, "2026-11-02": 2, "2026-11-04": 1}[key] for key in expected
    ]
    assert len({run["run_uri"] for run in runs}) == len(expected)
    assert len(opened) == 1


def test_a_day_of_a_range_without_input_is_named(days):
    result = days("run", NAME, "--partition", "2026-11-01..2026-11-04")

    assert result.exit_code == 0
    assert "there is no input for 2026-11-03" in result.stderr


def test_a_partition_that_fails_does_not_stop_the_others_and_the_exit_code_tells(days):
    write_rows(days.folder, "2026-11-02", [None, None])

    result = days("run", NAME, "--partition", "2026-11-01..2026-11-04", "--json")
    found = told(result)

    assert (result.exit_code, found["exit_code"], found["num_failed"]) == (3, 3, 1)
    assert [run.get("exit_code") for run in found["runs"]] == [None, 3, None]
    assert "1 of 3 runs did not end well; first small_job 2026-11-02: not one of" in found["error"]
    assert days("run", NAME, "--partition", "2026-11-04", "--json").exit_code == 0


def test_two_jobs_share_an_engine(promptmill, opened):
    promptmill.write_job("second", prompt={"column": "text", "system": "Be brief."})

    result = promptmill("run", NAME, "second")

    assert result.exit_code == 0
    assert "small_job" in result.stdout
    assert "second" in result.stdout
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("options", "told_of"),
    [
        (["--partition", "2026-12-01.."], "no partition from 2026-12-01 to the last"),
        (["--partition", "2026-11-01..2026-11-31"], "'2026-11-31' is no day"),
        (["--partition", "2026-11-01", "--partition", "2026-11-03"], "no partition `2026-11-03`"),
    ],
    ids=["an empty range", "no day", "one that is not there"],
)
def test_what_cannot_be_run_is_told_before_anything_runs(days, options, told_of):
    result = days("run", NAME, *options)

    assert result.exit_code == 2
    assert told_of in result.stderr
    assert not days.output.exists()


def test_the_bills_of_consecutive_runs_hold_the_device_without_a_gap(days):
    runs = told(days("run", NAME, "--partition", "..", "--json"))["runs"]

    for run in runs:
        lineage = told(days("lineage", run["run_uri"], "--json"))
        assert len(lineage["attempts"]) == 1
        assert abs(lineage["difference_s"]) < 1e-6
    # The second run's engine was ready before it began: its bill begins when the first's ended.
    assert runs[1]["load_s"] < 0.05
    assert runs[1]["device_s"] > 0.05


def test_an_engine_without_settings_cannot_be_tuned(promptmill):
    result = promptmill("tune", NAME)

    assert result.exit_code == 2
    assert "only engine vllm has settings to tune" in result.stderr
    assert not promptmill.output.exists()
