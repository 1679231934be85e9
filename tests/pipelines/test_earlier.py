from pathlib import Path

import pytest

from pipelines.earlier import MAX_SIBLINGS, earlier_answers, earlier_outputs
from pipelines.plan_parts import written_plan
from pipelines.storage import open_store
from schemas.plans import Plan
from tests.pipelines.echo_runs import EchoRunner, run_store

TEXTS = [f"{'word ' * (n % 40)}ticket {n}" for n in range(60)]


@pytest.fixture
def echo(checkpoint):
    return EchoRunner(checkpoint, max_model_len=400)


@pytest.fixture
def tickets(write_input):
    write_input({"id": [str(n) for n in range(60)], "text": TEXTS})


def more_tickets(write_input):
    write_input(
        {"id": [str(n) for n in range(70)], "text": [*TEXTS, *(f"new {n}" for n in range(10))]}
    )


def plan_of(report) -> Plan:
    plan = written_plan(run_store(report))
    assert plan is not None
    return plan


def test_a_first_run_predicts_what_is_possible_and_says_so(echo, tickets, make_job):
    plan = plan_of(echo(make_job(sampling={"max_tokens": 30})))

    assert plan.prediction_basis.startswith("max_tokens")
    assert all(batch.predicted_output_tokens == batch.max_output_tokens for batch in plan.batches)


def test_a_second_run_predicts_from_the_answers_of_the_first(echo, tickets, write_input, make_job):
    """Echo answers a prompt with its last tokens; those of short prompts are all of them."""
    job = make_job(sampling={"max_tokens": 100})
    first = echo(job)
    more_tickets(write_input)
    plan = plan_of(echo(job))

    assert plan.prediction_basis == "60 answers of 1 earlier run, by prompt length"
    predicted = sum(batch.predicted_output_tokens for batch in plan.batches)
    assert predicted == pytest.approx(first.num_output_tokens * 70 / 60, rel=0.2)
    assert predicted < sum(batch.max_output_tokens for batch in plan.batches)


@pytest.mark.parametrize(
    "change",
    [{"prompt": {"user": "Now {{ text }}"}}, {"sampling": {"max_tokens": 29}}],
    ids=["another template", "other sampling"],
)
def test_answers_to_other_requests_say_nothing(echo, tickets, make_job, change):
    echo(make_job(sampling={"max_tokens": 30}))

    assert plan_of(echo(make_job(**change))).prediction_basis.startswith("max_tokens")


def test_a_damaged_earlier_run_counts_as_none(echo, tickets, write_input, make_job):
    first = echo(make_job())
    Path(first.run_uri, "lineage.parquet").write_bytes(b"PAR1")
    more_tickets(write_input)

    assert plan_of(echo(make_job())).prediction_basis.startswith("max_tokens")


def test_where_labels_or_max_tokens_alone_end_an_answer_nothing_is_predicted(
    echo, tickets, write_input, make_job
):
    job = make_job(sampling={"max_tokens": 30, "ignore_eos": True})
    echo(job)
    more_tickets(write_input)

    plan = plan_of(echo(job))
    assert plan.prediction_basis == "max_tokens: nothing else ends an answer"


def test_other_partitions_are_looked_at_and_only_the_last_of_them(tmp_path, make_job):
    out = tmp_path / "out"
    for day in range(1, 29):
        (out / f"2026-02-{day:02d}").mkdir(parents=True)
    job = make_job(
        input={"uri": str(tmp_path / "in" / "{partition}.parquet")},
        output={"uri": str(out / "{partition}")},
        partitions={"daily": {"start": "2026-02-01"}},
    )
    own = open_store(str(out / "2026-02-28"))

    found = earlier_outputs(job, own, open_store)
    assert [store.uri[-2:] for store in found] == [
        "28",
        *(f"{day:02d}" for day in range(29 - MAX_SIBLINGS, 28)),
    ]
    assert earlier_outputs(make_job(), own, open_store) == (own,)


def test_runs_that_are_gone_say_nothing(tmp_path, checkpoint, echo, tickets, make_job):
    first = echo(make_job())
    for path in sorted(Path(first.run_uri).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    plan = plan_of(echo(make_job()))

    assert plan.prediction_basis.startswith("max_tokens")
    assert earlier_answers([], plan).lengths.num_requests == 0
