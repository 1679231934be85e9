import math
from collections import Counter

import pyarrow as pa
import pytest

from pipelines.attempt_log import read_attempts
from pipelines.audit import audit
from pipelines.engines import EchoEngine, EchoFaults
from pipelines.ledger import current_run, written_manifest
from pipelines.run import run
from pipelines.storage import open_store
from pipelines.trace import read_lineage
from schemas.errors import EngineDiedError, SettingsError, StoppedByLimitError
from schemas.generations import GENERATIONS
from schemas.rejects import REJECTS


def texts(count, start=0):
    numbers = range(start, start + count)
    return {
        "id": [f"r{i}" for i in numbers],
        "text": [f"ticket {i} about billing " * (1 + i % 5) for i in numbers],
    }


def never_opened(*_):
    pytest.fail("an engine was started")


@pytest.fixture
def many_batches(write_input, make_job):
    """A job of 200 rows in more than ten batches."""
    write_input(texts(200))
    return make_job(output={"max_batch_tokens": 700})


def test_every_row_has_its_own_answer(write_input, make_job, make_tools, rows_of, chat):
    columns = texts(150)
    write_input(columns)

    report = run(make_job(output={"max_batch_tokens": 900}), make_tools())
    generations, rejects = rows_of(report.run_uri)
    assert (len(generations), rejects) == (150, [])
    by_id = dict(zip(columns["id"], columns["text"], strict=True))
    for row in generations:
        asked = chat._special.encode(f"{by_id[row['row_key']]}<|im_end|>\n<|im_start|>assistant\n")
        assert row["text"] == chat.decode([asked.ids[-8:]])[0]


def test_a_second_run_does_nothing_and_says_so(many_batches, make_tools):
    first = run(many_batches, make_tools())
    second = run(many_batches, make_tools(open_engine=never_opened))

    assert first.num_reused_batches == 0
    assert second.num_reused_batches == second.num_batches == first.num_batches > 10
    assert (second.device_s, second.usd, second.output_tokens_per_s) == (0, 0, None)
    assert second.run_device_s == first.device_s


def test_counts_of_the_report_are_those_of_the_tables(many_batches, make_tools, rows_of):
    report = run(many_batches, make_tools())
    generations, _ = rows_of(report.run_uri)

    assert report.num_rows == report.num_generations == len(generations) == 200
    assert report.num_prompt_tokens == sum(row["num_prompt_tokens"] for row in generations)
    assert report.num_output_tokens == sum(row["num_output_tokens"] for row in generations) > 0


def test_the_bill_of_an_attempt_is_its_batches_and_load_and_idle(many_batches, make_tools):
    report = run(many_batches, make_tools())
    store = open_store(report.run_uri)
    (end,) = read_attempts(store).ends
    batches = read_lineage(store)["device_s"].to_pylist()

    parts = end.load_s + end.busy_s + end.idle_s + end.tail_idle_s
    assert end.wall_s == pytest.approx(parts, abs=1e-6)
    assert math.fsum(batches) == pytest.approx(end.busy_s - end.wasted_s, abs=1e-6)
    assert report.device_s == end.wall_s
    assert report.usd == pytest.approx(end.wall_s / 3600 * 3.0)


def test_a_changed_row_is_another_run_and_readers_are_pointed_to_it(
    write_input, make_job, make_tools, tmp_path
):
    write_input(texts(20))
    first = run(make_job(), make_tools())
    write_input({**texts(20), "text": ["changed"] * 20})
    second = run(make_job(), make_tools())

    assert first.run_key != second.run_key
    assert current_run(open_store(str(tmp_path / "out"))) == second.run_key
    assert audit(open_store(second.run_uri)).faults == ()


def test_price_schedule_and_limits_do_not_make_another_run(write_input, make_job, make_tools):
    write_input(texts(20))
    first = run(make_job(), make_tools())
    dearer = make_job(price={"usd_per_device_hour": 9.0}, limits={"max_usd": 5.0})

    assert run(dearer, make_tools(open_engine=never_opened)).run_key == first.run_key


def test_an_input_without_rows_ends_with_empty_tables_and_no_engine(
    write_input, make_job, make_tools, tmp_path
):
    write_input(pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}))

    report = run(make_job(), make_tools(open_engine=never_opened))
    parts = sorted((tmp_path / "out" / report.run_key).glob("*/b*.parquet"))
    assert [
        (pa.parquet.read_schema(p).equals(s), p.parent.name)
        for p, s in zip(parts, (GENERATIONS, REJECTS), strict=True)
    ] == [(True, "generations"), (True, "rejects")]
    assert (report.num_rows, report.num_batches) == (0, 1)
    assert audit(open_store(report.run_uri)).faults == ()


def test_an_input_of_rejects_alone_needs_no_engine(write_input, make_job, make_tools):
    write_input({"id": ["a", "b"], "text": pa.array([None, ""])})

    report = run(make_job(), make_tools(open_engine=never_opened))
    assert report.rejects_by_code == {"EMPTY_PROMPT": 1, "NULL_PROMPT": 1}


def test_parts_of_every_batch_have_the_same_schema(many_batches, make_tools, tmp_path):
    report = run(many_batches, make_tools())
    parts = list((tmp_path / "out" / report.run_key / "generations").glob("*.parquet"))
    schemas = [pa.parquet.read_schema(part) for part in parts]

    assert len(parts) == report.num_batches
    assert all(schema.equals(GENERATIONS) for schema in schemas)
    assert all(schema.metadata == GENERATIONS.metadata for schema in schemas)


def test_rows_with_the_same_request_share_one_answer(write_input, make_job, make_tools, rows_of):
    write_input({"id": [f"r{i}" for i in range(60)], "text": [f"text {i % 20}" for i in range(60)]})

    report = run(make_job(), make_tools())
    generations, _ = rows_of(report.run_uri)
    assert report.num_requests == 20
    answers = {}
    for row in generations:
        answers.setdefault(row["request_id"], set()).add(row["text"])
    assert (len(answers), {len(found) for found in answers.values()}) == (20, {1})
    assert Counter(row["is_fanned_out"] for row in generations) == {True: 40, False: 20}


def test_labels_are_choices_with_probabilities_that_sum_to_one(
    write_input, make_job, make_tools, rows_of
):
    write_input(texts(50))
    choices = ["bug", "bug report", "billing", "account"]

    report = run(make_job(output={"labels": {"choices": choices}}), make_tools())
    generations, _ = rows_of(report.run_uri)
    assert len({tuple(row["label_probabilities"]) for row in generations}) > 1
    for row in generations:
        shares = dict(row["label_probabilities"])
        assert list(shares) == choices
        assert math.fsum(shares.values()) == pytest.approx(1)
        assert row["label"] == row["text"] == max(shares, key=shares.__getitem__)
        assert row["label_margin"] >= 0


def test_a_rows_own_sampling_settings_are_honoured_and_recorded(
    write_input, make_job, make_tools, rows_of
):
    write_input({**texts(3), "n": [3, None, 5], "t": [None, 0.5, 0.0]})
    columns = {"max_tokens": "n", "temperature": "t"}

    report = run(make_job(sampling={"max_tokens": 8, "columns": columns}), make_tools())
    found = {
        row["row_key"]: (row["num_output_tokens"], row["max_tokens"], row["temperature"])
        for row in rows_of(report.run_uri)[0]
    }
    assert found == {"r0": (3, 3, 0.0), "r1": (8, 8, 0.5), "r2": (5, 5, 0.0)}


def test_json_that_is_cut_short_or_wrong_is_a_reject_and_never_repaired(
    write_input, make_job, make_tools, rows_of
):
    write_input(texts(5))
    output = {"json_schema": {"type": "object"}, "keep_invalid_text": True}

    report = run(make_job(output=output), make_tools())
    _, rejects = rows_of(report.run_uri)
    assert report.rejects_by_code == {"INVALID_OUTPUT": 5}
    assert all(row["text"] and row["stage"] == "generate" for row in rejects)


def test_an_engine_that_dies_is_replaced_and_no_row_is_lost_or_doubled(many_batches, make_tools):
    faults = [EchoFaults(dies_at=n) for n in (50, 1, 90)]

    report = run(many_batches, make_tools(*faults, EchoFaults()))
    assert report.num_generations == 200
    assert audit(open_store(report.run_uri)).faults == ()
    assert read_attempts(open_store(report.run_uri)).ends[0].num_engine_restarts == 3


@pytest.mark.parametrize("kind", ["answers_twice_at", "answers_unknown_at", "drops_at"])
def test_an_engine_that_answers_wrongly_is_replaced_and_rows_keep_their_own_answers(
    kind, many_batches, make_tools, rows_of
):
    good = run(many_batches, make_tools())
    right = {row["row_key"]: row["text"] for row in rows_of(good.run_uri)[0]}
    again = many_batches.model_copy(
        update={"output": many_batches.output.model_copy(update={"uri": good.run_uri + "-again"})}
    )

    report = run(again, make_tools(EchoFaults(**{kind: 77}), EchoFaults()))
    assert {row["row_key"]: row["text"] for row in rows_of(report.run_uri)[0]} == right


@pytest.mark.parametrize(("kind", "code"), [("poison", "ENGINE_CRASH"), ("hang", "TIMEOUT")])
def test_rows_that_kill_the_engine_are_rejected_and_all_others_answered(
    kind, code, write_input, make_job, make_tools, rows_of, chat
):
    columns = texts(300)
    for i in (3, 150, 299):
        columns["text"][i] += " POISON"
    write_input(columns)
    marker = tuple(chat.encode_answer("POISON"))

    report = run(make_job(), make_tools(EchoFaults(**{kind: marker})))
    generations, rejects = rows_of(report.run_uri)
    assert {row["row_key"]: row["code"] for row in rejects} == dict.fromkeys(
        ("r3", "r150", "r299"), code
    )
    assert len(generations) == 297
    assert all(row["num_tries"] >= 2 for row in rejects)


def test_engines_that_die_at_every_start_end_the_run_with_what_was_committed(
    many_batches, make_tools
):
    with pytest.raises(EngineDiedError, match="3 engines in a row"):
        run(many_batches, make_tools(EchoFaults(dies_at=120), EchoFaults(dies_at_start=True)))

    report = run(many_batches, make_tools())
    assert report.num_reused_batches > 0
    assert audit(open_store(report.run_uri)).faults == ()


def test_a_budget_stops_the_run_and_a_larger_one_resumes_it(write_input, make_job, make_tools):
    write_input(texts(200))
    output = {"max_batch_tokens": 700}
    price = {"usd_per_device_hour": 1e9}

    with pytest.raises(StoppedByLimitError, match="max_usd"):
        run(
            make_job(output=output, price=price, limits={"max_usd": 0.001}),
            make_tools(max_num_seqs=8),
        )
    report = run(make_job(output=output), make_tools())
    assert report.num_generations == 200
    assert [end.outcome for end in read_attempts(open_store(report.run_uri)).ends] == [
        "interrupted",
        "finished",
    ]


class InterruptedAtPoll(EchoEngine):
    """Someone presses Ctrl-C while this engine makes its n-th step."""

    polls_left = 9

    def poll(self, timeout_s):
        self.polls_left -= 1
        if self.polls_left == 0:
            raise KeyboardInterrupt
        return super().poll(timeout_s)


def test_an_interrupt_keeps_every_batch_that_was_finished(many_batches, make_tools):
    def interrupted(*_):
        return InterruptedAtPoll(max_model_len=512, max_num_seqs=8)

    with pytest.raises(KeyboardInterrupt):
        run(many_batches, make_tools(open_engine=interrupted))
    report = run(many_batches, make_tools())
    assert 3 <= report.num_reused_batches < report.num_batches
    assert audit(open_store(report.run_uri)).faults == ()


def test_what_does_not_fit_is_told_before_anything_is_written(
    write_input, make_job, make_tools, tmp_path
):
    write_input(texts(3))

    with pytest.raises(SettingsError, match="has no column `txt`"):
        run(make_job(prompt={"column": "txt"}), make_tools())
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_limit_is_part_of_what_a_run_is(write_input, make_job, make_tools):
    write_input(texts(30))

    few, all_rows = run(make_job(), make_tools(), limit=10), run(make_job(), make_tools())
    assert (few.num_rows, all_rows.num_rows) == (10, 30)
    assert few.run_key != all_rows.run_key
    assert audit(open_store(few.run_uri)).faults == ()


def test_one_thousand_rows_with_one_of_each_bad_kind(
    write_input, make_job, make_tools, rows_of, chat
):
    columns = texts(1000)
    columns["n"] = [4] * 1000
    bad = {
        10: ("text", None, "NULL_PROMPT"),
        20: ("text", "  ", "EMPTY_PROMPT"),
        30: ("text", "x " * 2000, "PROMPT_TOO_LONG"),
        40: ("n", -3, "BAD_SAMPLING"),
        50: ("id", None, "NULL_ID"),
        60: ("id", "r1", "DUPLICATE_ID"),
        70: ("text", "POISON", "ENGINE_CRASH"),
    }
    for i, (column, value, _) in bad.items():
        columns[column][i] = value
    folder = write_input(columns, "1.parquet")
    (open_store(folder)).put("0.parquet", b"no parquet")
    job = make_job(sampling={"max_tokens": 8, "columns": {"max_tokens": "n"}})
    poison = EchoFaults(poison=tuple(chat.encode_answer("POISON")))

    report = run(job, make_tools(poison))
    generations, rejects = rows_of(report.run_uri)
    assert report.num_rows == 1001 == len(generations) + len(rejects)
    assert {row["row"]: row["code"] for row in rejects} == {
        None: "FILE_UNREADABLE",
        **{i: code for i, (_, _, code) in bad.items()},
    }
    assert {row["row_key"] for row in generations} == {f"r{i}" for i in range(1000) if i not in bad}
    assert audit(open_store(report.run_uri)).faults == ()


def test_the_manifest_is_the_last_thing_written(many_batches, make_tools):
    with pytest.raises(EngineDiedError):
        run(many_batches, make_tools(EchoFaults(dies_at=150), EchoFaults(dies_at_start=True)))

    (key,) = {path for path in open_store(many_batches.output.uri).list_names("") if "run1" in path}
    assert written_manifest(open_store(f"{many_batches.output.uri}/{key}")) is None


def test_a_rehearsal_with_another_engine_is_another_run(many_batches, make_tools):
    rehearsal = run(many_batches, make_tools())
    real = run(many_batches, make_tools(engine="another"))

    assert real.run_key != rehearsal.run_key
    assert real.num_reused_batches == 0


def test_a_trial_never_takes_the_place_of_a_real_run(many_batches, make_tools):
    output = open_store(many_batches.output.uri)
    run(many_batches, make_tools(), limit=5)
    real = run(many_batches, make_tools(engine="another"))
    run(many_batches, make_tools(engine="another"), limit=7)
    run(many_batches, make_tools())

    assert current_run(output) == real.run_key


def test_a_run_that_ends_after_a_later_one_does_not_take_its_place(
    write_input, make_job, make_tools
):
    write_input(texts(20))
    job, later = make_job(), make_job(sampling={"max_tokens": 3})
    made = []

    def late(*_):
        made.append(run(later, make_tools()))
        return EchoEngine(max_model_len=512)

    run(job, make_tools(open_engine=late))
    assert current_run(open_store(job.output.uri)) == made[0].run_key


def test_files_of_others_beside_ours_are_ignored_and_kept(many_batches, make_tools):
    output = open_store(many_batches.output.uri)
    key = run(many_batches, make_tools()).run_key
    foreign = ["current/.DS_Store", f"{key}/attempts/notes.txt", f"{key}/generations/my.parquet"]
    for name in foreign:
        output.put(name, b"mine")
    output.delete(f"{key}/manifest.json")

    run(many_batches, make_tools())
    assert [output.get(name) for name in foreign] == [b"mine"] * 3


def test_the_copy_of_the_pointer_is_put_right_by_the_next_run(many_batches, make_tools):
    output = open_store(many_batches.output.uri)
    report = run(many_batches, make_tools())
    output.put("current.json", b"junk")

    run(many_batches, make_tools())
    assert report.run_key.encode() in output.get("current.json")


def test_an_output_inside_the_input_is_refused(write_input, make_job, make_tools):
    folder = write_input(texts(3))

    with pytest.raises(SettingsError, match="lies in the input"):
        run(make_job(output={"uri": f"{folder}/out"}), make_tools())


def test_ten_rows_that_kill_the_engine_among_a_thousand_are_found(
    write_input, make_job, make_tools, rows_of, chat
):
    columns = texts(1024)
    for i in range(0, 1000, 100):
        columns["text"][i] += " POISON"
    write_input(columns)
    poison = EchoFaults(poison=tuple(chat.encode_answer("POISON")))

    report = run(make_job(), make_tools(poison))
    assert report.rejects_by_code == {"ENGINE_CRASH": 10}
    assert {row["row_key"] for row in rows_of(report.run_uri)[1]} == {
        f"r{i}" for i in range(0, 1000, 100)
    }


def test_an_engine_that_never_answers_rejects_no_row(write_input, make_job, make_tools):
    write_input(texts(8))

    with pytest.raises(EngineDiedError, match="gave no answer"):
        run(make_job(), make_tools(EchoFaults(dies_at=1)))
    assert run(make_job(), make_tools()).num_generations == 8
