import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.data_sets import DataMissingError
from benchmarks.workloads import WORKLOADS, mixed_lengths, repeated_summaries


@pytest.fixture
def dialogues(tmp_path, monkeypatch):
    rows = [{"id": f"d{i}", "dialogue": f"#Person1#: This is talk {i}."} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "dialogsum_dev.parquet")
    monkeypatch.setenv("PROMPTMILL_BENCH_DATA", str(tmp_path))


def test_mixed_lengths_are_the_same_at_every_call_and_about_as_long_as_they_say():
    workload = mixed_lengths(96)

    lengths = [ask.max_tokens for ask in workload.asks]
    assert workload.table == mixed_lengths(96).table
    assert workload.table["max_tokens"].to_pylist() == lengths
    assert 34 <= sum(lengths) / 96 <= 42


def test_one_row_of_five_is_repeated_under_an_id_of_its_own(dialogues):
    workload = repeated_summaries(20)

    texts = [ask.user for ask in workload.asks]
    assert (len(texts), len(set(texts)), len(set(workload.table["id"].to_pylist()))) == (20, 16, 20)


def test_a_data_set_that_is_not_here_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMPTMILL_BENCH_DATA", str(tmp_path))

    for name in ("w1", "w2", "w3", "w5"):
        with pytest.raises(DataMissingError, match=r"\.parquet is not there"):
            WORKLOADS[name].make(10)


def test_more_rows_than_a_data_set_has_are_refused(dialogues):
    with pytest.raises(DataMissingError, match="has 40 rows, 41 were asked for"):
        WORKLOADS["w1"].make(41)
