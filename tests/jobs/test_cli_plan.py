import functools

import pytest

import jobs.openers
from tests.jobs.command_line import NUM_ROWS, TEXTS, ran, told
from tests.jobs.small_jobs import NAME, write_job, write_partitioned_job, write_rows

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


def test_a_plan_after_a_run_goes_by_what_that_took(promptmill, monkeypatch):
    at_a_speed = functools.partial(jobs.openers.EchoEngine, tokens_per_s=1e5)
    monkeypatch.setattr(jobs.openers, "EchoEngine", at_a_speed)
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


# ---------------------------------------------------------------------------- --explain


def test_a_plan_explains_every_engine_setting(promptmill):
    arguments = ("plan", NAME, "--engine", "vllm", "--explain")
    result = promptmill(*arguments)
    rows = told(promptmill(*arguments, "--json", "--set", "engine.max_num_seqs=7"))[
        "engine_settings"
    ]

    by_name = {row["setting"]: row for row in rows}
    assert {"compile", "max_num_batched_tokens", "kv_cache_bytes", "max_model_len"} <= set(by_name)
    assert (by_name["max_num_seqs"]["value"], by_name["max_num_seqs"]["reason"]) == (
        "7",
        "job file",
    )
    assert all(len(row["reason"]) > 5 for row in rows)
    assert "engine settings" in result.stdout
    assert "keeps prefill and decode in balance" in " ".join(result.stdout.split())


def test_a_plan_that_is_not_asked_explains_nothing(promptmill):
    assert "engine_settings" not in told(promptmill("plan", NAME, "--engine", "vllm", "--json"))


def test_a_second_run_shows_what_was_forecast_beside_what_came(promptmill, monkeypatch):
    at_a_speed = functools.partial(jobs.openers.EchoEngine, tokens_per_s=1e4)
    monkeypatch.setattr(jobs.openers, "EchoEngine", at_a_speed)
    ran(promptmill, "--limit", "2")

    result = promptmill("run", NAME)

    assert result.exit_code == 0, result.output
    assert "predicted: " in result.stderr
    assert "device held" in result.stdout
    assert "off by" in result.stdout


def test_a_limit_below_the_forecast_is_warned_of_before_the_run(promptmill, monkeypatch):
    at_a_speed = functools.partial(jobs.openers.EchoEngine, tokens_per_s=1e4)
    monkeypatch.setattr(jobs.openers, "EchoEngine", at_a_speed)
    ran(promptmill, "--limit", "2")
    limits = ["--set", "limits.max_usd=1e-9"]

    planned = promptmill("plan", NAME, *limits)
    stopped = promptmill("run", NAME, *limits)

    assert "the run will stop before its end" in planned.stdout
    assert "the run will stop before its end" in stopped.stderr
    assert stopped.exit_code == 4
    assert "rows) are committed; the same command does the rest" in stopped.stderr


# ------------------------------------------------------------------ questions and what they share


@pytest.mark.parametrize(
    ("template", "is_warned"),
    [("{{ text }}\n\n{{ question }}", False), ("{{ question }}\n\n{{ text }}", True)],
)
def test_a_plan_says_what_questions_share_and_what_to_do_where_it_is_little(
    promptmill, template, is_warned
):
    write_rows(promptmill.folder, "long", ["a long ticket about many things " * 8])
    write_job(
        promptmill.folder,
        model={"id": str(promptmill.folder / "model"), "weights": "as_is"},
        prompt={"user": template},
        questions=[{"name": "angry", "text": "Angry?"}, {"name": "kind", "text": "What kind?"}],
        sampling={"max_tokens": 4},
    )

    result = promptmill("plan", NAME)
    found = told(promptmill("plan", NAME, "--json"))

    assert ("behind the row's text" in " ".join(result.stdout.split())) == is_warned
    assert (found["num_spared_tokens"] == 0) == is_warned
    assert found["num_questions"] == 2
