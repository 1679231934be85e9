import json
import math

import pyarrow as pa
import pytest

from pipelines.export import generations
from pipelines.ingest import find_input, ingest
from pipelines.questions import asking_of
from pipelines.reading import parts, read_part, sealed
from pipelines.row_prompts import num_shared, prompts_of
from pipelines.run import run
from pipelines.storage import open_store
from schemas.errors import SettingsError
from schemas.requests import SamplingSettings

TEMPLATE = {"system": "You read.", "user": "Ticket:\n{{ text }}\n\n{{ question }}"}
QUESTIONS = [
    {"name": "angry", "text": "Is it angry?", "choices": ["yes", "no"]},
    {
        "name": "product",
        "text": "Which product is it about?",
        "choices": ["bug", "bug report", "x"],
    },
    {"name": "summary", "text": "Sum it up.", "max_tokens": 4},
]


@pytest.fixture
def ask(make_job, make_tools, write_input):
    """Runs a job with questions over texts and returns its report and rows by key."""

    def asked(texts, questions=QUESTIONS, ids=None, **sections):
        write_input({"id": ids or [f"t{i}" for i in range(len(texts))], "text": texts})
        job = make_job(**{"prompt": TEMPLATE, "questions": questions, **sections})
        report = run(job, make_tools())
        found = generations(open_store(report.run_uri)).collect().to_dicts()
        return report, {row["row_key"]: row for row in found}

    return asked


def test_every_row_gets_an_answer_to_every_question_in_one_row(ask):
    report, rows = ask(["my bug", "no billing"])

    assert (report.num_rows, report.num_generations, report.num_rejects) == (2, 2, 0)
    for row in rows.values():
        angry, product, summary = row["answers"]
        assert [one["question"] for one in row["answers"]] == ["angry", "product", "summary"]
        assert angry["label"] in {"yes", "no"}
        shares = {one["key"]: one["value"] for one in product["label_probabilities"]}
        assert list(shares) == ["bug", "bug report", "x"]
        assert math.fsum(shares.values()) == pytest.approx(1)
        assert (summary["label"], summary["num_output_tokens"]) == (None, 4)
        assert json.loads(row["text"]) == {one["question"]: one["text"] for one in row["answers"]}


def test_each_questions_tokens_are_counted_in_the_row_and_in_the_lineage(ask):
    report, rows = ask(["my bug", "no billing"])

    for name in ("num_prompt_tokens", "num_output_tokens"):
        for row in rows.values():
            assert row[name] == sum(one[name] for one in row["answers"])
        assert getattr(report, name) == sum(row[name] for row in rows.values())


def test_the_same_document_twice_is_asked_once_and_answers_both_rows(ask):
    report, rows = ask(["same", "same", "other"])

    assert rows["t0"]["answers"] == rows["t1"]["answers"]
    assert [rows[key]["is_fanned_out"] for key in ("t0", "t1", "t2")] == [False, True, False]
    assert report.num_prompt_tokens == sum(rows[key]["num_prompt_tokens"] for key in ("t0", "t2"))


def test_a_question_without_an_acceptable_answer_rejects_the_row_and_keeps_the_others(ask):
    shape = {"name": "parts", "text": "Name its parts.", "json_schema": {"type": "object"}}
    report, rows = ask(["my bug", None], [QUESTIONS[0], shape], output={"keep_invalid_text": True})

    assert (rows, report.rejects_by_code) == ({}, {"INVALID_OUTPUT": 1, "NULL_PROMPT": 1})
    run_store = open_store(report.run_uri)
    _, manifest = sealed(run_store)
    tables = [read_part(run_store, part) for part in parts(manifest, "rejects")]
    found = {row["code"]: row for row in pa.concat_tables(tables).to_pylist()}
    assert found["INVALID_OUTPUT"]["message"].startswith("parts: ")
    assert [one["question"] for one in found["INVALID_OUTPUT"]["answers"]] == ["angry"]
    assert set(json.loads(found["INVALID_OUTPUT"]["text"])) == {"angry", "parts"}
    assert found["NULL_PROMPT"]["answers"] is None


def test_the_prompts_of_a_row_are_the_whole_templates_with_each_question(
    chat, make_job, write_input
):
    write_input({"id": ["a"], "text": ["the {{ question }} stays text"]})
    job = make_job(prompt=TEMPLATE, questions=QUESTIONS)
    prompt = next(iter(ingest(find_input(job.input.uri), job)))

    assert [messages[-1].content for messages in prompt.conversations] == [
        f"Ticket:\nthe {{{{ question }}}} stays text\n\n{one['text']}" for one in QUESTIONS
    ]


def test_what_prompts_share_is_kept_once_and_put_before_each_tail_again():
    prompts = [[1, 2, 3, 4], [1, 2, 3], [1, 2, 9, 9]]
    begin = num_shared(prompts)

    assert begin == 2
    assert prompts_of(prompts[0][:begin], [one[begin:] for one in prompts]) == list(
        map(tuple, prompts)
    )
    assert num_shared([[1, 2], [1, 2]]) == 2


def test_labels_take_their_own_tokens_and_text_the_questions(chat, make_job):
    asking = asking_of(make_job(prompt=TEMPLATE, questions=QUESTIONS), chat)

    asks = asking.asks([(1,), (2,), (3,)], SamplingSettings(max_tokens=99))

    assert asks[0][1].max_tokens == 1
    assert asks[-1] == ((3,), SamplingSettings(max_tokens=4))
    assert [asks[place][0] for place in asking.first_asks] == [(1,), (2,), (3,)]
    assert len(asks) == asking.num_asks


def test_a_document_too_long_for_its_longest_question_is_cut_alike_for_all(ask):
    text = "word " * 400
    _, rows = ask([text], prompt={**TEMPLATE, "on_too_long": "truncate"})

    (row,) = rows.values()
    longest = max(one["num_prompt_tokens"] + 4 for one in row["answers"])
    assert row["num_truncated_tokens"] > 0
    assert 500 <= longest <= 516


def test_a_document_too_long_for_one_question_is_a_reject(ask):
    report, rows = ask(["word " * 400, "short"])

    assert (list(rows), report.rejects_by_code) == (["t1"], {"PROMPT_TOO_LONG": 1})


def test_a_column_called_question_is_refused(make_job, write_input):
    write_input({"id": ["a"], "text": ["x"], "question": ["mine"]})
    job = make_job(prompt=TEMPLATE, questions=QUESTIONS)

    with pytest.raises(SettingsError, match="has a column `question`"):
        list(ingest(find_input(job.input.uri), job))


def test_an_edited_question_is_another_run(ask):
    first, _ = ask(["x"])
    second, _ = ask(["x"], [{**QUESTIONS[0], "text": "Is it rude?"}, *QUESTIONS[1:]])

    assert first.run_key != second.run_key
