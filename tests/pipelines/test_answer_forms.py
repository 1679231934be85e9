import csv
import json

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines.export import answers, export
from pipelines.storage import open_store
from schemas.errors import SettingsError
from tests.pipelines.echo_runs import EchoRunner, run_store

TEMPLATE = {"user": "{{ text }}\n\n{{ question }}"}
QUESTIONS = [
    {"name": "angry", "text": "Is it angry?", "choices": ["yes", "no"]},
    {"name": "parts", "text": "Parts?", "json_schema": {"type": "object"}, "max_tokens": 3},
    {"name": "summary", "text": "Sum it up.", "max_tokens": 4},
]
WIDE = [
    *("angry", "angry_probabilities", "angry_margin"),
    *("angry_num_prompt_tokens", "angry_num_output_tokens"),
    *("summary", "summary_finish_reason"),
    *("summary_num_prompt_tokens", "summary_num_output_tokens"),
]


@pytest.fixture
def asked(checkpoint, make_job, write_input):
    """Runs questions over three rows, one of them null, and returns the run."""

    def run_of(questions):
        write_input({"id": ["a", "b", "c"], "text": ["a bug", None, "billing"], "n": [1, 2, 3]})
        return run_store(EchoRunner(checkpoint)(make_job(prompt=TEMPLATE, questions=questions)))

    return run_of


def test_a_wide_export_has_columns_for_each_question_and_a_row_for_each_row(asked, tmp_path):
    export(asked([QUESTIONS[0], QUESTIONS[2]]), tmp_path / "all.parquet")

    found = pq.read_table(tmp_path / "all.parquet")
    assert found["id"].to_pylist() == ["a", "b", "c"]
    assert [name for name in found.column_names if name.startswith(("angry", "summary"))] == WIDE
    row = found.to_pylist()[0]
    assert row["angry"] in {"yes", "no"}
    assert sum(share for _, share in row["angry_probabilities"]) == pytest.approx(1)
    assert found["summary"].to_pylist()[1] is None
    assert found["reject_code"].to_pylist() == [None, "NULL_PROMPT", None]


def test_a_long_export_has_a_row_for_each_question_of_each_row(asked, tmp_path):
    export(asked([QUESTIONS[0], QUESTIONS[2]]), tmp_path / "all.csv", form="long")

    with (tmp_path / "all.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["id"], row["question"], row["n"]) for row in found] == [
        (key, name, n) for key, n in zip("abc", "123", strict=True) for name in ("angry", "summary")
    ]
    assert [row["reject_code"] for row in found] == ["", "", *["NULL_PROMPT"] * 2, "", ""]
    assert found[0]["generation_text"] == found[0]["label"]
    assert found[1]["label"] == ""


def test_what_was_answered_before_a_question_failed_is_exported_beside_the_reject(asked, tmp_path):
    export(asked(QUESTIONS), tmp_path / "all.jsonl", with_input=False)

    row = json.loads((tmp_path / "all.jsonl").read_text().splitlines()[0])
    assert (row["row_key"], row["reject_code"], row["parts"]) == ("a", "INVALID_OUTPUT", None)
    assert row["angry"] in row["angry_probabilities"]
    assert row["summary"] is not None


def test_answers_are_read_as_one_lazy_frame_in_either_form(asked):
    run = asked([QUESTIONS[0], QUESTIONS[2]])

    long = answers(run).filter(pl.col("question") == "angry").collect()
    wide = answers(run, "wide").collect()
    assert sorted(long["row_key"]) == sorted(wide["row_key"]) == ["a", "c"]
    assert dict(long.select("row_key", "label").rows()) == dict(
        wide.select("row_key", "angry").rows()
    )
    assert answers(run).head(3).collect().height == 3


def test_a_job_without_questions_has_no_long_form(checkpoint, make_job, write_input, tmp_path):
    write_input({"id": ["a"], "text": ["x"]})
    run = run_store(EchoRunner(checkpoint)(make_job()))

    with pytest.raises(SettingsError, match="has no questions"):
        export(run, tmp_path / "all.csv", form="long")
    with pytest.raises(SettingsError, match="has no questions"):
        answers(open_store(run.uri))
