import itertools
from pathlib import Path

import pytest

from pipelines.calibration import calibration_of
from pipelines.engines import EchoEngine
from pipelines.run import run
from schemas.errors import VerificationError
from tests.pipelines.echo_runs import EchoRunner, run_store

NUM_ROWS = 300


def a_third(request) -> tuple[int, ...]:
    """Answers with a third of the prompt's tokens, give or take a fifth of that by the prompt."""
    length = len(request.prompt_token_ids) // 3
    return request.prompt_token_ids[
        : max(1, length + (sum(request.prompt_token_ids) % 5 - 2) * length // 10)
    ]


@pytest.fixture
def summarize(write_input, make_job, make_tools):
    """Runs a job whose answers are about a third of their prompts; each time on other rows."""

    def ran(day: int):
        texts = [f"{day} {n} " + "word " * (n * 37 % 90) for n in range(NUM_ROWS)]
        write_input({"id": [str(n) for n in range(NUM_ROWS)], "text": texts})
        tools = make_tools(
            open_engine=lambda need: EchoEngine(max_model_len=need.context_length, answer=a_third)
        )
        report = run(make_job(sampling={"max_tokens": 128}), tools)
        return calibration_of(run_store(report))

    return ran


def test_a_second_run_predicts_better_than_the_first(summarize):
    first, second = summarize(1), summarize(2)

    assert first.total.predicted_mean == 128
    assert second.total.mean_absolute_error < 0.15 * first.total.mean_absolute_error
    assert abs(second.total.bias) < 0.05 * second.total.actual_mean
    assert 0.0 < second.total.above_p90_fraction < 0.2
    assert "300 answers of 1 earlier run" in second.basis


def test_buckets_by_prompt_length_add_up_to_all_requests(summarize):
    found = summarize(1)

    assert sum(one.num_requests for one in found.buckets) == found.total.num_requests == NUM_ROWS
    spans = [(one.min_prompt_tokens, one.max_prompt_tokens) for one in found.buckets]
    assert all(first < last for first, last in spans)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(spans))
    means = [one.actual_mean for one in found.buckets]
    assert means == sorted(means)


@pytest.fixture
def report(checkpoint, write_input, make_job):
    write_input({"id": list("abcd"), "text": ["one", "one", None, "a longer one"]})
    return EchoRunner(checkpoint)(make_job(output={"max_batch_tokens": 20}))


def test_rejects_and_shared_rows_are_no_requests(report):
    assert calibration_of(run_store(report)).total.num_requests == 2


def test_of_an_unfinished_run_committed_batches_are_shown(report):
    Path(report.run_uri, "manifest.json").unlink()
    Path(report.run_uri, "commits", f"b{report.num_batches - 1:07d}.json").unlink()

    assert calibration_of(run_store(report)).total.num_requests == 1


def test_where_nothing_was_answered_nothing_is_calibrated(checkpoint, write_input, make_job):
    write_input({"id": ["a"], "text": [""]})
    found = calibration_of(run_store(EchoRunner(checkpoint)(make_job())))

    assert (found.buckets, found.total) == ((), None)


def test_a_run_without_a_plan_is_an_error(report):
    Path(report.run_uri, "plan", "plan.json").unlink()

    with pytest.raises(VerificationError, match="no plan"):
        calibration_of(run_store(report))
