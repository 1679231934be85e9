from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.command_line import NUM_ROWS, TEXTS, ran, told
from tests.jobs.small_jobs import NAME, write_rows

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


def test_calibration_shows_predicted_lengths_beside_those_that_came(promptmill):
    report = ran(promptmill)

    found = told(promptmill("lineage", report["run_uri"], "--calibration", "--json"))
    shown = promptmill("lineage", report["run_uri"], "--calibration")

    total = found["total"]
    assert total["num_requests"] == report["num_requests"]
    assert total["bias"] == pytest.approx(total["predicted_mean"] - total["actual_mean"])
    assert sum(one["num_requests"] for one in found["buckets"]) == total["num_requests"]
    assert "predicted from:" in shown.stdout
    assert f"run: {report['run_uri']}" in shown.stdout


def test_the_lineage_of_a_run_adds_up_to_what_devices_were_held(promptmill):
    report = ran(promptmill)

    found = told(promptmill("lineage", report["run_uri"], "--json"))
    result = promptmill("lineage", report["run_uri"])

    for unit, held in (("device_s", report["run_device_s"]), ("usd", report["run_usd"])):
        parts = [found[unit][name] for name in ("batches", "wasted", "load", "idle", "tail_idle")]
        assert sum(parts) == pytest.approx(held) == found[unit]["held"]
    assert abs(found["difference_s"]) < 1e-6
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
