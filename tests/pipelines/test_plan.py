from pathlib import Path

import pytest

from pipelines.ingest import find_input, ingest
from pipelines.plan import plan
from pipelines.plan_parts import read_batches, written_plan
from pipelines.prediction import Prediction
from pipelines.storage import open_store
from pipelines.tokenize import Room
from schemas.errors import VerificationError
from schemas.output_lengths import OutputLengths
from schemas.runs import RunIdentity

IDENTITY = RunIdentity(
    run_key="run1-x",
    profile_id="pf1-x",
    prompt_id="pt1-x",
    job_name="tested",
    job="{}",
    partition=None,
    input_uri="in",
    id_column="id",
)

NOTHING_KNOWN = Prediction(basis="max_tokens", lengths=OutputLengths())


@pytest.fixture
def make_plan(tmp_path, chat):
    """Plans a job into a store and returns the plan and the rows of its batches."""

    def made(job, folder="run", max_batch_tokens=None, max_model_len=512, prediction=NOTHING_KNOWN):
        store = open_store(str(tmp_path / folder))
        planned = plan(
            ingest(find_input(job.input.uri), job),
            store,
            IDENTITY,
            chat,
            room=Room(
                max_model_len=max_model_len,
                max_tokens=job.sampling.max_tokens,
                num_answer_tokens=None,
            ),
            sampling=job.sampling.settings(),
            prediction=prediction,
            max_batch_tokens=max_batch_tokens,
        )
        return planned, [
            cut.rows.to_pylist() for cut in read_batches(store, planned, planned.batches)
        ]

    return made


def texts(count):
    return {
        "id": [f"r{i}" for i in range(count)],
        "text": ["word " * (1 + i % 17) for i in range(count)],
    }


def test_every_row_is_in_exactly_one_batch(write_input, make_job, make_plan):
    write_input({**texts(500), "text": [f"{i} " + "word " * (i % 17) for i in range(500)]})

    planned, batches = make_plan(make_job(), max_batch_tokens=1000)
    keys = [row["row_key"] for rows in batches for row in rows]
    assert sorted(keys) == sorted(f"r{i}" for i in range(500))
    assert planned.num_rows == planned.num_requests == 500
    assert [len(rows) for rows in batches] == [batch.num_rows for batch in planned.batches]


def test_no_batch_is_more_than_one_request_over_its_token_budget(write_input, make_job, make_plan):
    write_input({"id": [f"r{i}" for i in range(200)], "text": [f"{i} x" * 9 for i in range(200)]})

    planned, _ = make_plan(make_job(), max_batch_tokens=700)
    sizes = [b.num_prompt_tokens + b.predicted_output_tokens for b in planned.batches]
    assert len(sizes) > 5
    assert max(sizes) < 700 + 60


def test_the_longest_requests_come_first(write_input, make_job, make_plan):
    write_input(
        {"id": [str(i) for i in range(50)], "text": [f"{i} " * (1 + i * 7 % 50) for i in range(50)]}
    )

    _, batches = make_plan(make_job(), max_batch_tokens=300)
    lengths = [row["num_prompt_tokens"] for rows in batches for row in rows]
    assert lengths == sorted(lengths, reverse=True)


def test_prompts_with_a_long_common_beginning_stay_together(write_input, make_job, make_plan):
    threads = ["alpha beta gamma " * 20, "delta epsilon zeta " * 12]
    write_input(
        {
            "id": [str(i) for i in range(12)],
            "text": [f"{threads[i % 2]} question {i}" for i in range(12)],
        }
    )

    planned, batches = make_plan(make_job())
    groups = [row["prefix_group"] for rows in batches for row in rows]
    assert groups == sorted(groups)
    assert len(set(groups)) == 2
    assert planned.num_prefix_tokens >= 10 * 90


def test_the_same_request_is_asked_once_and_its_other_rows_share_it(
    write_input, make_job, make_plan
):
    write_input({"id": list("abcd"), "text": ["same", "other", "same", "same"]})

    planned, (rows,) = make_plan(make_job())
    assert (planned.num_rows, planned.num_requests) == (4, 2)
    assert planned.batches[0].num_shared == 2
    shared = [row for row in rows if row["prompt_token_ids"] is None]
    assert [row["row_key"] for row in shared] == ["c", "d"]
    assert {row["request_digest"] for row in shared} == {
        row["request_digest"] for row in rows if row["row_key"] == "a"
    }
    assert planned.num_shared_tokens > 0


def test_the_same_request_is_asked_again_where_sampling_is_random(write_input, make_job, make_plan):
    write_input({"id": list("ab"), "text": ["same", "same"]})

    assert make_plan(make_job(sampling={"temperature": 0.5}))[0].num_requests == 2
    assert make_plan(make_job(sampling={"temperature": 0.5, "seed": 1}), "b")[0].num_requests == 1


def test_a_repeated_id_is_a_reject_for_all_but_the_first_row(write_input, make_job, make_plan):
    write_input({"id": ["a", "b", "a"], "text": ["x", "y", "z"]}, "1.parquet")
    write_input({"id": ["a", "c"], "text": [None, "y"]}, "2.parquet")

    planned, (rejects, rows) = make_plan(make_job())
    assert planned.rejects_by_code == {"DUPLICATE_ID": 2}
    assert [row["row_key"] for row in rejects] == ["1.parquet#2", "2.parquet#0"]
    assert sorted(row["row_key"] for row in rows) == ["a", "b", "c"]


def test_a_prompt_that_does_not_fit_is_rejected_with_both_sizes(write_input, make_job, make_plan):
    write_input({"id": list("abc"), "text": ["x " * 600, "y" * 10_000_000, "ok"]})

    planned, (rejects, rows) = make_plan(make_job())
    assert planned.rejects_by_code == {"PROMPT_TOO_LONG": 2}
    assert "8 output tokens do not fit 512 tokens" in rejects[0]["reject_message"]
    assert [row["row_key"] for row in rows] == ["c"]


def test_a_prompt_of_exactly_the_room_fits_and_one_token_more_does_not(
    write_input, make_job, make_plan
):
    write_input({"id": ["a"], "text": ["hello there"]})
    (row,) = make_plan(make_job())[1][0]
    room = row["num_prompt_tokens"] + 8

    assert make_plan(make_job(), "exact", max_model_len=room)[0].num_requests == 1
    assert make_plan(make_job(), "less", max_model_len=room - 1)[0].num_requests == 0


def test_truncation_cuts_the_longest_value_and_keeps_the_question(
    write_input, make_job, make_plan, chat
):
    write_input({"id": ["a"], "doc": [" ".join(f"w{i}" for i in range(900))], "who": ["you"]})
    prompt = {"user": "{{ doc }}\nWho? {{ who }}", "on_too_long": "truncate"}

    _, (rows,) = make_plan(make_job(prompt=prompt))
    text = chat._special.decode(rows[0]["prompt_token_ids"], skip_special_tokens=False)
    assert rows[0]["num_truncated_tokens"] > 0
    assert 512 - 8 - 3 <= rows[0]["num_prompt_tokens"] <= 512 - 8
    assert text.startswith("<|im_start|>user\nw0 w1 w2")
    assert text.endswith("\nWho? you<|im_end|>\n<|im_start|>assistant\n")


def test_an_unreadable_file_is_one_reject_and_its_rows_do_not_count(
    write_input, make_job, make_plan
):
    folder = write_input({"id": ["a"], "text": ["x"]}, "1.parquet")
    (Path(folder) / "0.parquet").write_bytes(b"PAR1 no")

    planned, (rejects, rows) = make_plan(make_job())
    assert planned.rejects_by_code == {"FILE_UNREADABLE": 1}
    assert (rejects[0]["row_key"], rejects[0]["row"]) == ("0.parquet", None)
    assert [row["row_key"] for row in rows] == ["a"]
    assert planned.num_rows == 2


def test_an_input_without_rows_has_one_batch_of_no_rows(write_input, make_job, make_plan):
    write_input({"id": ["a"], "text": ["x"]})
    write_input(texts(0), "rows.parquet")

    planned, batches = make_plan(make_job())
    assert batches == [[]]
    assert planned.num_rows == 0


def test_the_plan_that_was_written_first_is_everyones(write_input, make_job, make_plan, tmp_path):
    write_input(texts(60))
    first, _ = make_plan(make_job(), max_batch_tokens=100)
    second, _ = make_plan(make_job(), max_batch_tokens=1000)

    store = open_store(str(tmp_path / "run"))
    assert second == first == written_plan(store)
    assert [item.key for item in store.list("plan") if "index" in item.key] == [
        part.key for part in first.parts
    ]


def test_a_damaged_plan_is_not_followed(write_input, make_job, make_plan, tmp_path):
    write_input(texts(60))
    planned, _ = make_plan(make_job())
    path = tmp_path / "run" / planned.parts[0].key
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    with pytest.raises(VerificationError, match=planned.parts[0].key):
        list(read_batches(open_store(str(tmp_path / "run")), planned, planned.batches))


def test_every_batch_knows_the_most_that_one_of_its_requests_may_come_to(
    write_input, make_job, make_plan
):
    rows = {"id": ["a", "b", "c"], "text": ["word " * 30, "word", None], "most": [5, 50, 7]}
    write_input(rows)

    planned, batches = make_plan(make_job(sampling={"columns": {"max_tokens": "most"}}))
    requests = [row for rows in batches for row in rows if row["reject_code"] is None]
    longest = [batch.longest_tokens for batch in planned.batches]

    assert None in longest
    assert max(filter(None, longest)) == max(
        row["num_prompt_tokens"] + row["max_output_tokens"] for row in requests
    )
