import json
from pathlib import Path

import pytest

from schemas.errors import SettingsError
from schemas.job_spec import JobSpec, parse_job

SMALLEST = {
    "name": "small",
    "input": {"uri": "in/x.parquet"},
    "prompt": {"column": "text"},
    "model": {"id": "m"},
}


def job(**changes):
    return parse_job({**SMALLEST, **changes}, source="small.yaml")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"modle": {}}, "unknown key `modle`; did you mean `model`?"),
        ({"prompt": {"colum": "x"}}, "unknown key `prompt.colum`; did you mean `column`?"),
        ({"sampling": {"temprature": 1}}, "unknown key `sampling.temprature`; did you mean"),
        ({"limits": {"max_rejcts": 1}}, "did you mean `max_rejects`?"),
        ({"prompt": {"column": "a", "user": "{{ b }}"}}, "name exactly one of"),
        ({"prompt": {}}, "name exactly one of"),
        ({"sampling": {"max_tokens": "64"}}, "`sampling.max_tokens`"),
        ({"sampling": {"temperature": 3.0}}, "`sampling.temperature`"),
        ({"sampling": {"temperature": float("nan")}}, "`sampling.temperature`"),
        ({"model": {"id": "m", "weights": "int9"}}, "`model.weights`"),
        ({"output": {"labels": {"choices": ["a", "a"]}}}, "a choice stands twice"),
        ({"output": {"labels": {"choices": ["a"]}}}, "`output.labels.choices`"),
        ({"name": "../x"}, "`name`"),
        ({"name": "a b"}, "`name`"),
        ({"input": {"uri": "in/{partition}.parquet"}}, "holds {partition}"),
        ({"partitions": {"daily": {"start": "2026-11-01"}}}, "does not hold {partition}"),
        ({"prompt": {"column": "text", "system": "\ud800"}}, "half a character"),
        ({"partitions": {"daily": {"start": "yesterday"}}}, "`partitions.daily.start`"),
        ({"partitions": {"daily": {"strt": 1}}}, "`partitions.daily.strt`; did you mean `start`?"),
        ({"limits": {"deadline": "soon"}}, "`limits.deadline`"),
    ],
)
def test_a_fault_is_named_with_its_key_and_the_nearest_right_one(changes, said):
    with pytest.raises(SettingsError) as caught:
        job(**changes)

    assert said in str(caught.value)
    assert str(caught.value).startswith("small.yaml: ")


def test_every_fault_of_a_file_is_told_at_once():
    with pytest.raises(SettingsError) as caught:
        job(modle={}, sampling={"temprature": 1})

    assert len(str(caught.value).splitlines()) == 2


def test_a_preset_gives_what_the_file_does_not_name():
    settings = job(sampling={"preset": "chat", "top_p": 0.5}).sampling.settings()

    assert (settings.temperature, settings.top_p) == (0.7, 0.5)


def test_partitions_none_is_the_same_as_no_partitions():
    assert job(partitions="none") == job()


def test_what_changes_no_answer_takes_no_part_in_the_identity():
    moved = job(
        description="other",
        price={"usd_per_device_hour": 9},
        limits={"max_usd": 1},
        schedule={"cron": "0 0 * * *"},
        engine={"max_num_seqs": 3},
        output={"uri": "elsewhere"},
        input={"uri": "other.parquet"},
    )

    assert moved.identity() == job().identity()


def test_what_changes_an_answer_takes_part_in_the_identity():
    others = [
        job(sampling={"max_tokens": 7}),
        job(prompt={"column": "text", "system": "s"}),
        job(model={"id": "m", "weights": "bf16"}),
        job(output={"labels": {"choices": ["a", "b"]}}),
    ]

    assert job().identity() not in [other.identity() for other in others]


def test_a_deadline_is_seconds_minutes_or_hours():
    found = [job(limits={"deadline": text}).limits.deadline_s for text in ("30s", "1.5m", "6h")]

    assert found == [30.0, 90.0, 21600.0]


def test_the_committed_json_schema_is_that_of_the_code():
    path = Path(__file__).parents[2] / "schemas" / "job.schema.json"

    assert json.loads(path.read_text()) == JobSpec.model_json_schema()


@pytest.mark.parametrize(
    ("partitions", "good", "bad"),
    [
        ({"daily": {"start": "2026-11-01"}}, "2026-11-30", "2026-10-31"),
        ({"daily": {"start": "2026-11-01", "end": "2026-11-02"}}, "2026-11-02", "2026-12-25"),
        ({"daily": {"start": "2026-11-01"}}, "2026-11-01", "2026-13-01"),
        ({"named": ["north", "south"]}, "north", "nort"),
    ],
)
def test_only_partitions_that_there_are_can_be_asked_for(partitions, good, bad):
    found = job(partitions=partitions, input={"uri": "in/{partition}"}).partitions

    found.check(good)
    with pytest.raises(SettingsError, match="no partition"):
        found.check(bad)
