from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.ingest import find_input, ingest
from schemas.errors import SettingsError
from schemas.plans import InputFile
from schemas.prompts import Message, Prompt


def read(job, limit=None):
    events = list(ingest(find_input(job.input.uri), job, limit=limit))
    prompts = [event for event in events if isinstance(event, Prompt)]
    files = [event for event in events if isinstance(event, InputFile)]
    return prompts, files


def codes(prompts):
    return [prompt.fault and prompt.fault.code for prompt in prompts]


def test_every_row_is_a_prompt_in_file_and_row_order(write_input, make_job):
    write_input({"id": ["a", "b"], "text": ["x", "y"]}, "2.parquet")
    write_input({"id": ["c"], "text": ["z"]}, "1.parquet")

    prompts, files = read(make_job())
    assert [(p.row_key, p.file_number, p.row) for p in prompts] == [
        ("c", 0, 0),
        ("a", 1, 0),
        ("b", 1, 1),
    ]
    assert [(file.key, file.num_rows) for file in files] == [("1.parquet", 1), ("2.parquet", 2)]


def test_without_an_id_column_file_and_row_number_are_the_key(write_input, make_job):
    write_input({"text": ["x", "y"]})

    prompts, _ = read(make_job(input={"id_column": None}))
    assert [p.row_key for p in prompts] == ["rows.parquet#0", "rows.parquet#1"]


def test_a_row_without_text_has_a_code_of_its_own(write_input, make_job):
    write_input({"id": ["a", "b", "c", "d"], "text": [None, "", " \n\t ", "ok"]})

    prompts, _ = read(make_job())
    assert codes(prompts) == ["NULL_PROMPT", "EMPTY_PROMPT", "EMPTY_PROMPT", None]


def test_a_null_id_is_a_fault_and_the_row_keeps_its_position_as_key(write_input, make_job):
    write_input({"id": ["a", None], "text": ["x", "y"]})

    prompts, _ = read(make_job())
    assert [(p.row_key, p.fault and p.fault.code) for p in prompts] == [
        ("a", None),
        ("rows.parquet#1", "NULL_ID"),
    ]


def test_a_whole_number_id_is_its_digits(write_input, make_job):
    write_input({"id": [7, 2**60], "text": ["x", "y"]})

    assert [p.row_key for p in read(make_job())[0]] == ["7", str(2**60)]


@pytest.mark.parametrize("ids", [[1.5], [True], [b"x"], [["x"]]])
def test_an_id_of_another_type_is_refused_before_anything_is_written(ids, write_input, make_job):
    write_input({"id": ids, "text": ["x"]})

    with pytest.raises(SettingsError, match="an id is text or a whole number"):
        read(make_job())


def test_bytes_that_are_not_utf8_are_not_text(write_input, make_job):
    offsets = pa.array([0, 3, 5], type=pa.int32()).buffers()[1]
    data = pa.py_buffer(b"\xed\xa0\x80ok")
    write_input(pa.table({"id": ["a", "b"], "text": pa.StringArray.from_buffers(2, offsets, data)}))

    prompts, _ = read(make_job())
    assert codes(prompts) == ["NOT_TEXT", None]
    assert prompts[1].conversations[0] == (Message("user", "ok"),)


def test_numbers_are_not_a_prompt(write_input, make_job):
    write_input({"id": ["a"], "text": [12]})

    assert codes(read(make_job())[0]) == ["NOT_TEXT"]


def test_a_missing_column_names_the_nearest(write_input, make_job):
    write_input({"id": ["a"], "txt": ["x"]})

    with pytest.raises(SettingsError, match="has no column `text`; did you mean `txt`"):
        read(make_job())


def test_a_column_that_stands_twice_is_refused(write_input, make_job):
    write_input(pa.Table.from_arrays([pa.array(["a"])] * 3, names=["id", "text", "text"]))

    with pytest.raises(SettingsError, match="more than one column `text`"):
        read(make_job())


def test_a_template_reads_the_row_and_a_null_column_renders_as_nothing(write_input, make_job):
    write_input({"id": ["a", "b"], "subject": ["S", None], "body": ["B", "B2"]})

    job = make_job(prompt={"system": "sys", "user": "{{ subject }}/{{ body }}"})
    prompts, _ = read(job)
    assert [p.conversations[0] for p in prompts] == [
        (Message("system", "sys"), Message("user", "S/B")),
        (Message("system", "sys"), Message("user", "/B2")),
    ]


def test_a_template_whose_columns_are_all_null_or_blank_makes_no_prompt(write_input, make_job):
    write_input(
        {"id": ["a", "b"], "s": pa.array([None, " "]), "b": pa.array([None, None], pa.string())}
    )

    prompts, _ = read(make_job(prompt={"user": "About {{ s }}: {{ b }}"}))
    assert codes(prompts) == ["NULL_PROMPT", "EMPTY_PROMPT"]


def test_a_template_that_fails_for_one_row_rejects_that_row_alone(write_input, make_job):
    write_input({"id": ["a", "b"], "text": ["x", "y"], "n": [0, 1]})

    prompts, _ = read(make_job(prompt={"user": "{{ text }} {{ 1 / n }}"}))
    assert codes(prompts) == ["TEMPLATE_ERROR", None]


def test_a_messages_column_is_taken_as_it_is_and_null_keys_are_left_out(write_input, make_job):
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())])
    rows = [
        [{"role": "system", "content": "s", "name": None}, {"role": "user", "content": "u"}],
        [],
        None,
        [{"role": "user", "content": None}],
        [{"role": "robot", "content": "u"}],
        [None],
    ]
    write_input({"id": list("abcdef"), "chat": pa.array(rows, pa.list_(turn))})

    prompts, _ = read(make_job(prompt={"messages": "chat"}))
    assert prompts[0].conversations[0] == (Message("system", "s"), Message("user", "u"))
    assert codes(prompts)[1:] == [
        "EMPTY_PROMPT",
        "NULL_PROMPT",
        "NOT_TEXT",
        "NOT_TEXT",
        "NOT_TEXT",
    ]


def test_a_rows_own_sampling_settings_are_read_and_checked(write_input, make_job):
    write_input(
        {
            "id": list("abcdef"),
            "text": ["x"] * 6,
            "n": [5, None, 0, 3, -1, 2**40],
            "t": [0.5, None, 0.0, float("nan"), 0.0, 0.0],
        }
    )

    job = make_job(sampling={"max_tokens": 8, "columns": {"max_tokens": "n", "temperature": "t"}})
    prompts, _ = read(job)
    assert [(p.max_tokens, p.temperature) for p in prompts[:2]] == [(5, 0.5), (None, None)]
    assert codes(prompts)[2:] == ["BAD_SAMPLING"] * 4


@pytest.mark.parametrize("damage", ["not parquet", "cut short", "page flipped"])
def test_a_damaged_file_is_one_fault_and_the_other_files_are_read(damage, write_input, make_job):
    folder = write_input(
        {"id": [f"a{i}" for i in range(5000)], "text": [f"t{i}" for i in range(5000)]},
        "1.parquet",
        write_page_checksum=True,
    )
    write_input({"id": ["b"], "text": ["y"]}, "2.parquet")
    path = Path(folder) / "1.parquet"
    content = bytearray(path.read_bytes())
    if damage == "page flipped":
        content[len(content) // 3] ^= 1
    damaged = {"not parquet": b"hello", "cut short": content[:-9]}.get(damage, content)
    path.write_bytes(damaged)

    prompts, files = read(make_job())
    assert [file.num_rows for file in files] == [None, 1]
    assert files[0].fault
    assert prompts[-1].row_key == "b"


def test_a_limit_ends_the_input_after_so_many_rows(write_input, make_job):
    write_input({"id": ["a", "b", "c"], "text": ["x"] * 3}, "1.parquet")
    write_input({"id": ["d"], "text": ["x"]}, "2.parquet")

    prompts, files = read(make_job(), limit=2)
    assert [p.row_key for p in prompts] == ["a", "b"]
    assert [(file.key, file.num_rows) for file in files] == [("1.parquet", 2)]


def test_a_file_without_rows_is_read(write_input, make_job):
    write_input(pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())}))

    prompts, files = read(make_job())
    assert (prompts, [file.num_rows for file in files]) == ([], [0])


def test_an_empty_id_is_no_id(write_input, make_job):
    write_input({"id": ["", "b"], "text": ["x", "y"]})

    assert codes(read(make_job())[0]) == ["NULL_ID", None]


@pytest.mark.parametrize("given", ["rows.parquet#1", "rows.parquet"])
def test_an_id_of_the_form_of_a_position_cannot_take_another_rows_key(given, write_input, make_job):
    write_input({"id": [given, None], "text": ["x", "y"]})

    prompts, _ = read(make_job())
    assert [p.row_key for p in prompts] == ["rows.parquet#0", "rows.parquet#1"]
    assert codes(prompts) == ["DUPLICATE_ID", "NULL_ID"]


def test_a_file_replaced_while_it_is_read_is_refused(write_input, make_job):
    write_input({"id": ["a"], "text": ["x"]})
    job = make_job()
    files = find_input(job.input.uri)
    write_input({"id": ["b"], "text": ["other"]})

    with pytest.raises(SettingsError, match="was replaced while it was read"):
        list(ingest(files, job))


def test_a_column_that_is_named_like_a_function_of_jinja_is_refused(write_input, make_job):
    write_input({"id": ["a"], "text": ["x"], "range": ["y"]})

    with pytest.raises(SettingsError, match="rename the column"):
        read(make_job(prompt={"user": "{{ text }} {{ range }}"}))


def test_values_that_python_cannot_hold_are_rejects_and_nanoseconds_are_text(write_input, make_job):
    write_input(
        pa.table(
            {
                "id": ["a", "b"],
                "text": ["x", "y"],
                "at": pa.array([1, 1_000_000_001], pa.timestamp("ns")),
                "day": pa.array([0, 2**31 - 1], pa.date32()),
            }
        )
    )

    prompts, _ = read(make_job(prompt={"user": "{{ at }}"}))
    assert prompts[1].conversations[0][0].content == "1970-01-01 00:00:01.000000001"
    assert codes(read(make_job(prompt={"user": "{{ text }} {{ day }}"}))[0]) == [None, "NOT_TEXT"]


def test_dictionary_encoded_ids_and_texts_are_read(write_input, make_job):
    words = pa.array(["a", "b"]).dictionary_encode()
    write_input(pa.table({"id": words, "text": words}))

    assert [p.row_key for p in read(make_job())[0]] == ["a", "b"]
