import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.command_line import NUM_ROWS, TEXTS
from tests.jobs.small_jobs import NAME, write_partitioned_job, write_rows


def told(result) -> dict:
    """The one JSON object on stdout."""
    assert result.stdout.count("\n") == 1, result.output
    return json.loads(result.stdout)


def ran(promptmill, *arguments: str) -> dict:
    result = promptmill("run", NAME, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return told(result)


# ---------------------------------------------------------------------------------- run


def test_every_row_of_a_run_is_a_generation_or_a_reject(promptmill):
    report = ran(promptmill)

    assert report["num_rows"] == NUM_ROWS
    assert report["num_generations"] + report["num_rejects"] == NUM_ROWS
    assert report["rejects_by_code"] == {"NULL_PROMPT": 1}
    assert report["num_requests"] == 3
    assert report["device_s"] > 0
    assert report["usd"] > 0


def test_a_second_run_reuses_every_batch_and_says_that_no_engine_was_started(promptmill):
    first = ran(promptmill)

    second = promptmill("run", NAME)
    report = ran(promptmill)

    told_of = f"all {first['num_batches']} batches were committed before; no engine was started"
    assert told_of in second.stdout
    assert report["num_reused_batches"] == report["num_batches"] == first["num_batches"]
    assert report["device_s"] == 0


def test_a_run_ends_with_a_table_samples_and_where_the_outputs_are(promptmill):
    result = promptmill("run", NAME)

    run = next(promptmill.output.glob("run1-*"))
    assert result.exit_code == 0
    assert "1  (NULL_PROMPT 1)" in result.stdout
    assert f"outputs: {run}\n" in result.stdout
    assert sum(line.startswith("2026-11-01-") for line in result.stdout.splitlines()) == 3


def test_options_take_the_place_of_what_the_job_file_says(promptmill, tmp_path):
    options = ["--limit", "2", "--set", "sampling.max_tokens=1", "--output", str(tmp_path / "o")]

    report = ran(promptmill, *options)

    assert report["run_uri"].startswith(str(tmp_path / "o" / "run1-"))
    assert (report["num_rows"], report["num_output_tokens"]) == (2, 2)


def test_a_set_value_wins_over_the_option_of_the_same_key(promptmill, tmp_path):
    report = ran(promptmill, "--output", "nowhere", "--set", f"output.uri={tmp_path / 'set'}")

    assert report["run_uri"].startswith(str(tmp_path / "set"))


def test_rejects_above_the_limit_end_a_complete_run_with_code_3(promptmill):
    result = promptmill("run", NAME, "--json", "--set", "limits.max_rejects=0.1")

    report = told(result)
    assert (result.exit_code, report["exit_code"]) == (3, 3)
    assert report["num_generations"] == NUM_ROWS - 1
    assert "1 of 5 rows were rejected (20.0%: NULL_PROMPT 1)" in result.stderr
    assert promptmill("verify", report["run_uri"]).exit_code == 0


def test_a_run_that_its_budget_stops_ends_with_code_4(promptmill):
    price = ["--set", "price.usd_per_device_hour=1e9", "--set", "limits.max_usd=0.000001"]
    write_rows(promptmill.folder, "more", [f"ticket {n}" for n in range(3000)])

    result = promptmill("run", NAME, *price)

    assert result.exit_code == 4
    assert "limits.max_usd" in result.stderr


# --------------------------------------------------------------------------- partitions


@pytest.fixture
def partitioned(promptmill):
    write_rows(promptmill.folder, "2026-11-02", TEXTS[:1])
    model = {"id": str(promptmill.folder / "model"), "weights": "as_is"}
    write_partitioned_job(promptmill.folder, {"daily": {"start": "2026-11-01"}}, model=model)
    return promptmill


def test_a_partition_that_is_not_named_is_an_error_that_lists_those_on_storage(partitioned):
    result = partitioned("run", NAME)

    assert result.exit_code == 2
    assert "name one with --partition" in result.stderr
    assert "2026-11-01, 2026-11-02" in result.stderr


def test_a_partition_that_is_not_on_storage_is_an_error_that_names_the_nearest(partitioned):
    result = partitioned("run", NAME, "--partition", "2026-11-2")

    assert result.exit_code == 2
    assert "no partition `2026-11-2`; did you mean `2026-11-02`?" in result.stderr


def test_an_input_without_a_partition_in_it_is_run_as_a_whole(partitioned):
    report = ran(partitioned, "--input", str(partitioned.folder / "input"))

    assert report["num_rows"] == NUM_ROWS + 1


def test_a_partition_of_a_job_that_has_none_is_an_error(promptmill):
    result = promptmill("run", NAME, "--partition", "2026-11-01")

    assert result.exit_code == 2
    assert "leave the option out" in result.stderr


# --------------------------------------------------------------------- plan and its bars


def test_a_plan_writes_nothing_to_the_output(promptmill):
    result = promptmill("plan", NAME, "--json")

    found = told(result)
    assert not promptmill.output.exists()
    assert (found["num_rows"], found["num_shared"], found["num_requests"]) == (NUM_ROWS, 1, 3)
    assert found["num_pending_batches"] == found["num_batches"]
    assert found["predicted_s"] is None
    assert "no earlier run" in found["forecast"]["basis"]


def test_a_plan_after_a_run_goes_by_what_that_took(promptmill):
    ran(promptmill, "--limit", "2")

    found = told(promptmill("plan", NAME, "--json"))

    assert found["predicted_s"] > 0
    assert found["predicted_usd"] > 0


def test_a_plan_of_a_finished_run_has_nothing_left_to_do(promptmill):
    report = ran(promptmill)

    result = promptmill("plan", NAME)
    found = told(promptmill("plan", NAME, "--json"))

    assert found["run_key"] == report["run_key"]
    assert (found["num_pending_batches"], found["predicted_s"]) == (0, 0)
    assert "no request is left" in result.stdout


def test_a_plan_shows_lengths_as_bars_and_names_what_does_not_fit(promptmill):
    write_rows(promptmill.folder, "long", ["word " * 2000])

    result = promptmill("plan", NAME)

    assert "█" in result.stdout
    assert "will not fit:\n  long-0: " in result.stdout


# --------------------------------------------------------------- verify, lineage, export


def test_a_sound_run_is_verified_by_its_own_uri_and_by_its_outputs(promptmill):
    report = ran(promptmill)

    for uri in (report["run_uri"], str(promptmill.output)):
        found = told(promptmill("verify", uri, "--json"))
        assert (found["faults"], found["num_rows"]) == ([], NUM_ROWS)


def test_one_changed_byte_makes_verify_end_with_code_1_and_name_the_part(promptmill):
    part = next(Path(ran(promptmill)["run_uri"], "generations").iterdir())
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)

    result = promptmill("verify", str(promptmill.output))
    found = promptmill("verify", str(promptmill.output), "--json")

    assert (result.exit_code, found.exit_code) == (1, 1)
    assert f"fault: generations/{part.name}: bytes differ" in result.stdout
    assert part.name in told(found)["faults"][0]


def test_the_lineage_of_a_run_adds_up_to_what_devices_were_held(promptmill):
    report = ran(promptmill)

    found = told(promptmill("lineage", report["run_uri"], "--json"))
    result = promptmill("lineage", report["run_uri"])

    parts = [found[name] for name in ("batches_s", "wasted_s", "load_s", "idle_s")]
    assert sum(parts) == pytest.approx(report["run_device_s"])
    assert len(found["batches"]) == report["num_batches"]
    assert "b0000000" in result.stdout
    assert "= held by 1 attempts" in result.stdout


def test_an_export_is_the_input_with_its_generations(promptmill, tmp_path):
    report = ran(promptmill)

    found = told(
        promptmill("export", report["run_uri"], "--to", str(tmp_path / "all.parquet"), "--json")
    )

    table = pq.read_table(tmp_path / "all.parquet")
    assert (found["num_rows"], table.num_rows) == (NUM_ROWS, NUM_ROWS)
    assert table["text"].to_pylist() == TEXTS
    assert table["generation_text"].null_count == 1


# ------------------------------------------------------------------- gc, jobs and models


def test_gc_lists_first_and_deletes_only_when_told(promptmill):
    orphan = Path(ran(promptmill)["run_uri"], "generations", "b0000000-0009-000000000000.parquet")
    orphan.write_bytes(b"left behind")

    listed = promptmill("gc", str(promptmill.output))
    assert orphan.exists()
    deleted = told(promptmill("gc", str(promptmill.output), "--delete", "--json"))

    assert orphan.name in listed.stdout
    assert "nothing was deleted" in listed.stdout
    assert (deleted["num_deleted"], orphan.exists()) == (1, False)


def test_a_broken_job_file_is_listed_with_its_error_and_the_others_are_well(promptmill):
    promptmill.write_job("broken", sampling={"max_tokns": 3})

    result = promptmill("jobs")
    found = told(promptmill("jobs", "--json"))["jobs"]

    assert result.exit_code == 0
    assert "broken: broken: " in result.stdout
    assert [(job["name"], job["error"] is None) for job in found] == [
        ("broken", False),
        (NAME, True),
    ]
    assert "did you mean `max_tokens`?" in found[0]["error"]


def test_a_model_that_has_its_weights_is_found_and_not_built(promptmill):
    folder = str(promptmill.folder / "model")

    found = told(promptmill("model", "build", folder, "--weights", "as_is", "--json"))

    assert (found["path"], found["weights"]) == (folder, "as_is")
