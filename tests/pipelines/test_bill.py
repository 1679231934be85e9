from pathlib import Path

import pytest

from pipelines.audit import audit
from pipelines.bill import Bill, bill_of
from tests.pipelines.echo_runs import EchoRunner, run_store

PARTS = ("batches", "wasted", "load", "idle", "tail_idle")


@pytest.fixture
def echo(checkpoint):
    return EchoRunner(checkpoint, tokens_per_s=1e5)


@pytest.fixture
def job(write_input, make_job):
    write_input({"id": [str(n) for n in range(40)], "text": [f"ticket {n}" for n in range(40)]})
    return make_job(output={"max_batch_tokens": 400})


@pytest.fixture
def report(echo, job):
    return echo(job)


def record(report, name: str) -> Path:
    return Path(report.run_uri, "attempts", name)


def assert_adds_up(bill: Bill) -> None:
    for shares in (bill.device_s, bill.usd, *(one.device_s for one in bill.attempts)):
        assert sum(getattr(shares, name) for name in PARTS) == pytest.approx(shares.held, abs=1e-6)
        assert abs(shares.difference) < 1e-6
        assert min(getattr(shares, name) for name in PARTS) >= -1e-9


def test_a_bill_adds_up_to_what_devices_were_held_in_seconds_and_in_usd(report):
    bill = bill_of(run_store(report))

    assert_adds_up(bill)
    assert bill.device_s.held == pytest.approx(report.run_device_s)
    assert bill.usd.held == pytest.approx(report.run_usd) == pytest.approx(report.usd)
    assert bill.usd.batches == pytest.approx(sum(one.usd for one in bill.batches))
    assert (bill.num_partly_known, bill.num_unknown, bill.faults) == (0, 0, ())


def test_what_comes_after_the_last_request_went_in_is_tail_and_not_idle(report):
    (attempt,) = bill_of(run_store(report)).attempts

    assert attempt.device_s.tail_idle > 0
    assert attempt.device_s.idle >= 0


def test_a_killed_attempt_is_known_up_to_its_last_commit(report):
    whole = bill_of(run_store(report))
    record(report, "0001-end.json").unlink()

    bill = bill_of(run_store(report))

    assert_adds_up(bill)
    assert (bill.num_partly_known, bill.num_unknown) == (1, 0)
    assert bill.device_s.batches == pytest.approx(whole.device_s.batches)
    assert 0 < bill.device_s.held < whole.device_s.held


def test_what_a_killed_attempt_had_begun_is_wasted(report):
    record(report, "0001-end.json").unlink()
    Path(report.run_uri, "manifest.json").unlink()
    first = Path(report.run_uri, "commits", "b0000000.json")
    lost_s = next(
        one.device_s for one in bill_of(run_store(report)).batches if one.batch_id == "b0000000"
    )
    first.unlink()

    bill = bill_of(run_store(report))

    assert_adds_up(bill)
    assert bill.device_s.wasted == pytest.approx(lost_s, abs=1e-6)


def test_an_attempt_that_was_killed_before_any_commit_is_said_to_be_unknown(report):
    record(report, "0002.json").write_bytes(
        record(report, "0001.json").read_bytes().replace(b'"epoch": 1', b'"epoch": 2')
    )

    bill = bill_of(run_store(report))

    assert (bill.num_partly_known, bill.num_unknown) == (0, 1)
    assert [one.state for one in bill.attempts] == ["ended", "unknown"]
    assert bill.attempts[1].use is None


def test_an_unfinished_run_has_the_bill_of_what_is_committed(report):
    Path(report.run_uri, "manifest.json").unlink()
    Path(report.run_uri, "commits", "b0000000.json").unlink()

    bill = bill_of(run_store(report))

    assert not bill.is_finished
    assert len(bill.batches) == report.num_batches - 1


def test_a_damaged_end_record_is_named_and_neither_bill_nor_rerun_fails_for_it(echo, job, report):
    record(report, "0001-end.json").write_bytes(b'{"epoch": 1')

    bill, again = bill_of(run_store(report)), echo(job)

    assert_adds_up(bill)
    assert [fault.split(":")[0] for fault in bill.faults] == ["attempts/0001-end.json"]
    assert bill.num_partly_known == 1
    assert again.num_reused_batches == again.num_batches


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("0001-end.json", b'"epoch": 1', b'"epoch": 7', "0001-end.json: is of attempt 7"),
        ("0001-end.json", b'"load_s": ', b'"load_s": 9', "its parts make"),
        ("0001-end.json", b'"wasted_s": ', b'"wasted_s": 9', "its waste make"),
        ("0001.json", b"{", b"", "attempts/0001.json: not a attempt"),
    ],
    ids=["epoch", "load", "wasted", "start"],
)
def test_verify_finds_a_changed_record_of_an_attempt(report, name, old, new, told):
    path = record(report, name)
    path.write_bytes(path.read_bytes().replace(old, new, 1))

    faults = audit(run_store(report)).faults

    assert any(told in fault for fault in faults)


def test_verify_finds_an_attempt_that_commits_name_and_that_never_began(report):
    record(report, "0001.json").unlink()
    record(report, "0001-end.json").unlink()

    assert audit(run_store(report)).faults == ("attempts/0001.json: absent, named by commits",)
