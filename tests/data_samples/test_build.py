import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "data_samples"
DAYS = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"]
CATEGORIES = {"billing", "bug", "account", "shipping", "feature"}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """Return build.py, loaded as Python loads a script: with its own folder on the path."""
    spec = importlib.util.spec_from_file_location("data_samples_build", SAMPLES / "build.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SAMPLES)
        spec.loader.exec_module(module)
        sys.modules.pop("sample_tickets")
    return module


@pytest.fixture(scope="module")
def tickets() -> pl.DataFrame:
    return pl.concat([pl.read_parquet(SAMPLES / "tickets" / f"{day}.parquet") for day in DAYS])


@pytest.fixture(scope="module")
def broken() -> pl.DataFrame:
    return pl.read_parquet(SAMPLES / "broken" / "rows.parquet")


def parquet_files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}


def num_words(frame: pl.DataFrame) -> pl.Series:
    return frame["body"].str.count_matches(r"\S+")


def test_a_rebuild_gives_the_committed_bytes(build, tmp_path):
    build.build(tmp_path)

    built, committed = parquet_files(tmp_path), parquet_files(SAMPLES)
    assert sorted(built) == sorted(committed)
    assert [name for name in built if built[name] != committed[name]] == []


def test_a_number_of_tickets_that_the_problems_cannot_make_is_refused(build):
    with pytest.raises(ValueError, match="192 to 288 are possible"):
        build.composed_tickets(289, build.random.Random(0))


def test_the_files_hold_the_written_schemas(build):
    for day in DAYS:
        assert pq.read_schema(SAMPLES / "tickets" / f"{day}.parquet").equals(build.TICKETS)
    for name in ("rows", "not_utf8"):
        assert pq.read_schema(SAMPLES / "broken" / f"{name}.parquet").equals(build.BROKEN)


def test_there_are_at_least_400_tickets_and_no_two_days_are_of_one_size(tickets):
    sizes = tickets.group_by(pl.col("created_at").dt.date()).len()["len"]

    assert tickets.height >= 400
    assert sizes.n_unique() == len(DAYS)


def test_no_ticket_id_comes_twice(tickets):
    assert tickets["ticket_id"].n_unique() == tickets.height


def test_every_ticket_was_created_on_the_day_of_its_file():
    for day in DAYS:
        created = pl.read_parquet(SAMPLES / "tickets" / f"{day}.parquet")["created_at"]
        assert created.dt.strftime("%Y-%m-%d").unique().to_list() == [day]
        assert created.is_sorted()


def test_every_category_occurs_on_every_day_and_no_other_does(tickets):
    by_day = tickets.group_by(pl.col("created_at").dt.date()).agg(pl.col("gold_category").unique())

    assert [set(categories) for categories in by_day["gold_category"]] == [CATEGORIES] * len(DAYS)


def test_there_are_at_least_five_languages_and_25_tickets_that_are_not_english(tickets):
    assert tickets["language"].n_unique() >= 5
    assert (tickets["language"] != "en").sum() >= 25


def test_about_one_text_in_twenty_is_a_repeat_within_a_day_or_from_the_day_before(tickets):
    day = pl.col("created_at").dt.date().alias("day")
    firsts = tickets.unique(["subject", "body"], keep="first", maintain_order=True).height
    firsts_by_day = tickets.select(day, "subject", "body").unique().height

    assert tickets.height - firsts == 22
    assert tickets.height - firsts_by_day == 13


def test_a_repeated_text_keeps_its_product_category_and_language(tickets):
    texts = tickets.select("subject", "body").unique()
    whole = tickets.select(pl.exclude("ticket_id", "created_at")).unique()

    assert whole.height == texts.height


def test_no_ticket_is_blank_and_the_longest_has_1400_to_1500_words(tickets):
    words = num_words(tickets)

    assert words.min() >= 1
    assert 1400 <= words.max() <= 1500
    assert (words >= 800).sum() >= 5


def test_on_each_day_three_tickets_or_more_open_with_the_same_250_words(tickets):
    opening = pl.col("body").str.extract(r"^((?:\S+\s+){250}\S+)").alias("opening")
    day = pl.col("created_at").dt.date()
    texts = tickets.unique(["subject", "body"]).group_by(day, opening).len()

    shared = texts.drop_nulls("opening").filter(pl.col("len") >= 3)
    assert shared["created_at"].n_unique() == len(DAYS)


def test_marks_of_templates_and_chats_stand_in_the_tickets_as_text(tickets):
    text = "\n".join(tickets["body"])

    for mark in ("{{ 7*7 }}", "{% if ", "<|im_end|>", "</s>", "[INST]", "🔥", "مربى"):
        assert mark in text


def test_the_broken_rows_have_one_of_each_kind(broken):
    body, ids = broken["body"], broken["ticket_id"]

    assert broken.filter(body.is_null() & broken["subject"].is_null()).height == 2
    assert ids.is_null().sum() == 2
    assert ids.value_counts(name="n").drop_nulls()["n"].max() == 3
    assert (body == "").sum() == 2
    assert body.str.contains("\0", literal=True).sum() == 1
    assert (body.str.strip_chars("\u200b\u200d\u2060\ufeff") == "").sum() == 3
    assert (body.str.len_chars() >= 80_000).sum() == 2


def test_six_rows_are_refused_as_utf8():
    table = pq.read_table(SAMPLES / "broken" / "not_utf8.parquet")
    rows = [table.slice(number, 1) for number in range(table.num_rows)]

    with pytest.raises(pa.ArrowInvalid, match="Invalid UTF8"):
        table.validate(full=True)
    assert [number for number, row in enumerate(rows) if not is_utf8(row)] == [1, 2, 3, 4, 5, 6]
    assert table["body"].cast(pa.large_binary())[2].as_py() == b"\xed\xa0\x80"


def is_utf8(table: pa.Table) -> bool:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def test_all_of_data_samples_is_at_most_500_kb():
    files = [path for path in SAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"]

    assert sum(path.stat().st_size for path in files) <= 500_000
