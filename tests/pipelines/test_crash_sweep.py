"""F1: kill -9 at every storage call of a run; the same run again; every row is there once."""

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.audit import audit
from pipelines.ledger import orphans, written_manifest
from tests.conftest import S3_OPTIONS
from tests.pipelines.killed_runs import Case, die, server

NUM_ROWS = 66


def case(tmp_path: Path, checkpoint, output: str, options, max_batch_tokens: int) -> Case:
    """A job of several batches, with shared rows and rejects among them."""
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    text = [None if i % 13 == 5 else f"ticket {i % 50} " * (1 + i % 3) for i in range(NUM_ROWS)]
    table = pa.table({"id": [f"r{i}" for i in range(NUM_ROWS)], "text": text})
    pq.write_table(table, folder / "rows.parquet")
    job = {
        "name": "swept",
        "input": {"uri": str(folder), "id_column": "id"},
        "prompt": {"column": "text"},
        "model": {"id": "tiny"},
        "sampling": {"max_tokens": 4},
        "output": {"uri": output, "max_batch_tokens": max_batch_tokens},
    }
    return Case(job=job, checkpoint=checkpoint, options=options)


@pytest.fixture(params=["local", "s3"])
def new_case(request, tmp_path, checkpoint):
    """Makes the case over an output folder that is new each time.

    On disk a run of more than ten batches; on S3, where each call is a request to a server
    in Python, one of five.
    """
    if request.param == "local":
        return lambda n: case(tmp_path, checkpoint, str(tmp_path / f"out-{n}"), {}, 200)
    port = request.getfixturevalue("s3_port")
    bucket = request.getfixturevalue("bucket")
    options = {"endpoint_url": f"http://127.0.0.1:{port}", **S3_OPTIONS}
    return lambda n: case(tmp_path, checkpoint, f"s3://{bucket}/out-{n}", options, 500)


@pytest.mark.timeout(600)
def test_a_run_killed_at_any_storage_call_is_completed_by_the_next_one(new_case):
    report, num_calls = new_case("whole").counted()
    assert report.num_batches >= 5
    assert num_calls >= 30
    context = server()

    for number in range(1, num_calls + 1):
        killed = new_case(number)
        child = context.Process(target=die, args=(killed, number, None))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL

        recovered = killed.run()
        store = killed.store(recovered.run_uri)
        assert audit(store).faults == (), f"killed before call {number}"
        assert recovered.num_rows == NUM_ROWS
        assert recovered.num_generations == report.num_generations
        assert orphans(store, written_manifest(store)) == ()


@pytest.mark.timeout(600)
def test_a_run_killed_after_its_commits_keeps_them(new_case):
    whole = new_case("whole")
    _, num_calls = whole.counted()
    killed = new_case("late")
    child = server().Process(target=die, args=(killed, None, num_calls - 10))
    child.start()
    child.join(60)

    recovered = killed.run()
    assert recovered.num_reused_batches >= 3
