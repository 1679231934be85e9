import csv
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.export import export, generations
from pipelines.reading import run_in
from pipelines.storage import open_store
from schemas.errors import SettingsError, VerificationError
from tests.pipelines.echo_runs import EchoRunner, run_store

IDS = ["a", "b", None, "a", "c", "d"]
TEXTS = ["one ticket", "another longer ticket", "no id", "same id", None, "=1+1"]


@pytest.fixture
def echo(checkpoint):
    return EchoRunner(checkpoint)


@pytest.fixture
def report(echo, write_input, make_job):
    write_input({"id": IDS, "text": TEXTS, "amount": [-1, 2, 3, 4, 5, 6]})
    return echo(make_job())


def test_an_output_without_a_run_is_an_error_that_says_what_lies_there(tmp_path):
    (tmp_path / "elsewhere").mkdir()

    with pytest.raises(SettingsError, match=r"no run at .*\n.*\n  found: elsewhere/"):
        run_in(open_store(str(tmp_path)))


def test_the_generations_of_an_output_are_those_of_its_current_run(
    echo, report, write_input, make_job
):
    write_input({"id": ["z"], "text": ["a new ticket"], "amount": [1]})
    echo(make_job())

    found = generations(open_store(str(Path(report.run_uri).parent))).collect()

    assert found["row_key"].to_list() == ["z"]


def test_generations_are_filtered_and_cut_like_any_frame(report):
    frame = generations(run_store(report))

    assert frame.collect_schema().names() == frame.collect().columns
    assert sorted(frame.select("row_key").collect()["row_key"]) == ["a", "b", "d"]
    assert frame.filter(pl.col("row_key") == "d").select("row").collect().rows() == [(5,)]
    assert frame.head(2).collect().height == 2


def test_a_run_without_any_generation_is_a_frame_of_no_rows(echo, write_input, make_job):
    write_input({"id": ["a"], "text": pa.array([None], pa.string())})

    frame = generations(run_store(echo(make_job()))).collect()

    assert (frame.height, frame["text"].dtype) == (0, pl.String)


def test_a_damaged_part_is_named_when_generations_are_read(report):
    found = Path(report.run_uri, "generations").glob("*.parquet")
    part = max(found, key=lambda path: path.stat().st_size)  # another one holds no rows
    frame = generations(run_store(report))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)

    with pytest.raises(Exception, match=f"{part.name}: bytes differ"):
        frame.collect()


def test_an_export_has_every_input_row_in_order_with_a_generation_or_a_reject_code(
    report, tmp_path
):
    told = export(run_store(report), tmp_path / "all.parquet")

    found = pq.read_table(tmp_path / "all.parquet")
    assert (told.num_rows, told.num_generations, told.num_rejects) == (6, 3, 3)
    assert found["id"].to_pylist() == IDS
    assert found["reject_code"].to_pylist() == [
        *(None, None, "NULL_ID", "DUPLICATE_ID", "NULL_PROMPT", None),
    ]
    assert [text is None for text in found["generation_text"].to_pylist()] == [
        code is not None for code in found["reject_code"].to_pylist()
    ]


def test_a_column_that_the_input_has_already_keeps_its_name_there(report, tmp_path):
    export(run_store(report), tmp_path / "all.parquet")

    found = pq.read_table(tmp_path / "all.parquet")
    assert found["text"].to_pylist() == TEXTS
    assert (
        found["generation_text"][0].as_py()
        == generations(run_store(report)).filter(pl.col("row_key") == "a").collect()["text"].item()
    )


def test_csv_texts_that_a_spreadsheet_would_run_are_escaped_and_numbers_are_not(report, tmp_path):
    export(run_store(report), tmp_path / "all.csv")

    with (tmp_path / "all.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["text"] for row in found] == [*TEXTS[:4], "", "'=1+1"]
    assert [row["amount"] for row in found] == ["-1", "2", "3", "4", "5", "6"]


def test_json_lines_hold_times_maps_and_bytes_as_plain_values(
    echo, write_input, make_job, tmp_path
):
    write_input(
        {
            "id": ["a"],
            "text": ["a bug"],
            "at": pa.array([0], pa.timestamp("us", "UTC")),
            "raw": [b"\x00\xff"],
            "share": [float("nan")],
        }
    )
    job = make_job(output={"labels": {"choices": ["bug", "billing"]}})

    export(run_store(echo(job)), tmp_path / "all.jsonl")

    row = json.loads((tmp_path / "all.jsonl").read_text())
    assert (row["at"], row["raw"], row["share"]) == ("1970-01-01T00:00:00+00:00", "AP8=", None)
    assert row["label"] in {"bug", "billing"}
    assert sum(row["label_probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("name", ["all.csv", "all.jsonl", "all.parquet"])
def test_text_of_the_input_that_is_not_utf8_does_not_stop_an_export(
    echo, write_input, make_job, tmp_path, name
):
    bad = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 2, bad.buffers())
    write_input(pa.table({"id": ["a", "b"], "text": ["x", "y"], "note": bad}))

    told = export(run_store(echo(make_job())), tmp_path / name)

    assert told.num_rows == 2
    if name != "all.parquet":
        assert "\N{REPLACEMENT CHARACTER}" in (tmp_path / name).read_text("utf-8")


def test_a_file_that_cannot_be_read_is_one_row_without_values(
    echo, write_input, make_job, tmp_path
):
    folder = write_input({"id": ["a"], "text": ["x"]}, name="b.parquet")
    Path(folder, "a.parquet").write_bytes(b"no Parquet")

    export(run_store(echo(make_job())), tmp_path / "all.parquet")

    found = pq.read_table(tmp_path / "all.parquet").to_pylist()
    assert [(row["row_key"], row["id"], row["reject_code"]) for row in found] == [
        ("a.parquet", None, "FILE_UNREADABLE"),
        ("a", "a", None),
    ]


def test_files_with_other_columns_are_exported_under_all_of_them(
    echo, write_input, make_job, tmp_path
):
    write_input({"id": ["a"], "text": ["x"], "n": pa.array([1], pa.int32())}, name="a.parquet")
    write_input({"text": ["y"], "id": ["b"], "n": [2**40], "more": [1.5]}, name="b.parquet")

    export(run_store(echo(make_job())), tmp_path / "all.parquet")

    found = pq.read_table(tmp_path / "all.parquet").select(["id", "n", "more"]).to_pylist()
    assert found == [{"id": "a", "n": 1, "more": None}, {"id": "b", "n": 2**40, "more": 1.5}]


def test_files_whose_columns_do_not_fit_together_are_an_error_and_write_nothing(
    echo, write_input, make_job, tmp_path
):
    write_input({"id": ["a"], "text": ["x"], "n": [1]}, name="a.parquet")
    write_input({"id": ["b"], "text": ["y"], "n": [["z"]]}, name="b.parquet")
    run = run_store(echo(make_job()))

    with pytest.raises(SettingsError, match="do not fit"):
        export(run, tmp_path / "all.parquet")

    assert not list(tmp_path.glob("*all.parquet*"))


def test_only_the_rows_of_a_limited_run_are_exported(echo, write_input, make_job, tmp_path):
    write_input({"id": [str(n) for n in range(9)], "text": [f"text {n}" for n in range(9)]})

    told = export(run_store(echo(make_job(), limit=4)), tmp_path / "all.parquet")

    assert told.num_rows == 4
    assert pq.read_table(tmp_path / "all.parquet")["id"].to_pylist() == ["0", "1", "2", "3"]


def test_an_input_that_changed_is_not_joined_and_can_be_left_out(report, write_input, tmp_path):
    write_input({"id": ["a"], "text": ["edited"], "amount": [1]})

    with pytest.raises(SettingsError, match=r"rows.parquet has changed since the run was planned"):
        export(run_store(report), tmp_path / "all.jsonl")
    export(run_store(report), tmp_path / "all.jsonl", with_input=False)

    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    keys = [json.loads(line)["row_key"] for line in lines]
    assert keys == ["a", "b", "rows.parquet#2", "rows.parquet#3", "c", "d"]


def test_an_unknown_format_names_the_nearest(report, tmp_path):
    with pytest.raises(SettingsError, match="no format `parket`; did you mean `parquet`"):
        export(run_store(report), tmp_path / "all.parket")


def test_a_run_that_is_not_finished_is_not_exported(report, tmp_path):
    Path(report.run_uri, "manifest.json").unlink()

    with pytest.raises(VerificationError, match="not finished"):
        export(run_store(report), tmp_path / "all.csv")
