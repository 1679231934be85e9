"""What a store promises when requests get lost, disks fail, and processes die or fork."""

import errno
import os
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.storage import StoredObject
from schemas.errors import SettingsError, StorageError
from tests.faults import CrashingStore

PASSING = ["drop before", "drop after", "slow down", "conflict", "error", "expired"]


def in_a_child(act) -> int:
    """Run `act` in a forked child; return its exit status, or minus the signal it died of."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def fails_on(function, error: Exception, *, num_times: int, after: bool):
    """Return `function` so that its first calls raise `error`, before or after they take effect."""
    left = iter(range(num_times))

    def called(*args, **options):
        if next(left, None) is None:
            return function(*args, **options)
        if after:
            function(*args, **options)
        raise error

    return called


@pytest.mark.parametrize("fault", PASSING)
def test_a_writer_whose_request_or_answer_got_lost_is_told_that_it_won(open_s3, proxy, fault):
    store = open_s3(endpoint_url=proxy.uri)
    proxy.next_request("PUT", fault, num_times=2)

    assert store.put_once("commits/1.json", b"mine")
    assert store.get("commits/1.json") == b"mine"


@pytest.mark.parametrize("fault", PASSING)
def test_a_writer_that_lost_is_told_so_whatever_error_came_first(open_s3, proxy, fault):
    store = open_s3(endpoint_url=proxy.uri)
    store.put_once("commits/1.json", b"theirs")
    proxy.next_request("PUT", fault)

    assert not store.put_once("commits/1.json", b"mine")
    assert store.get("commits/1.json") == b"theirs"


@pytest.mark.parametrize("fault", [*PASSING, "cut body"])
def test_reads_and_listings_are_asked_for_again(open_s3, proxy, fault):
    store = open_s3(endpoint_url=proxy.uri)
    store.put("a", b"0123456789")

    proxy.next_request("GET", fault)
    assert store.get("a") == b"0123456789"
    proxy.next_request("GET", fault)
    assert store.list("") == [StoredObject(key="a", num_bytes=10)]
    proxy.next_request("GET", fault)
    with store.open_read("a") as source:
        assert source.read(4) == b"0123"


def test_a_read_is_one_request_and_so_is_a_listing_of_nothing(open_s3, proxy):
    store = open_s3(endpoint_url=proxy.uri)
    store.put("a", b"1")

    assert store.get("a") == b"1"
    assert store.list("commits") == []

    assert proxy.num_requests("GET") == 2
    assert proxy.num_requests("HEAD") == 0


def test_twelve_slow_downs_in_a_row_are_waited_for(open_s3, proxy, monkeypatch):
    monkeypatch.setattr("pipelines.storage.attempts._MAX_WAIT_S", 0.2)
    store = open_s3(endpoint_url=proxy.uri)
    proxy.next_request("PUT", "slow down", num_times=12)

    assert store.put_once("a", b"1")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad disk"), FileExistsError("?")])
def test_a_local_writer_whose_link_fails_is_told_what_lies_there(
    local_store, monkeypatch, error, when
):
    link = fails_on(Path.hardlink_to, error, num_times=2, after=when == "after")
    monkeypatch.setattr(Path, "hardlink_to", link)

    assert local_store.put_once("a", b"mine")
    assert not local_store.put_once("a", b"theirs")
    assert local_store.get("a") == b"mine"


def test_a_local_writer_is_not_told_that_it_won_with_the_bytes_of_another(local_store, monkeypatch):
    local_store.put_once("a", b"theirs")
    link = fails_on(Path.hardlink_to, OSError(errno.EIO, "bad disk"), num_times=1, after=False)
    monkeypatch.setattr(Path, "hardlink_to", link)

    assert not local_store.put_once("a", b"mine")


def test_a_store_that_stays_away_ends_in_an_error_with_key_and_seconds(open_s3, proxy):
    store = open_s3(endpoint_url=proxy.uri, deadline_s=0.5)
    proxy.next_request("PUT", "error", num_times=1000)
    proxy.next_request("GET", "error", num_times=1000)

    started_s = time.monotonic()
    with pytest.raises(StorageError, match=r"writing `commits/1.json` failed for \d\.\d s"):
        store.put_once("commits/1.json", b"1")
    with pytest.raises(StorageError, match=r"reading `commits/1.json` failed for .* InternalError"):
        store.get("commits/1.json")
    assert time.monotonic() - started_s < 20


def test_a_full_disk_leaves_no_file_and_no_draft(local_store, tmp_path, monkeypatch):
    store = local_store.child("runs")
    store._deadline_s = 0.2
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", fails_on(os.fsync, full, num_times=1000, after=False))

    with pytest.raises(StorageError, match="No space left"):
        store.put("a", b"1")

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_system_without_hard_links_is_named_as_the_reason(local_store, monkeypatch):
    no_links = OSError(errno.EPERM, "Operation not permitted")
    monkeypatch.setattr(
        Path, "hardlink_to", fails_on(Path.hardlink_to, no_links, num_times=9, after=False)
    )

    with pytest.raises(SettingsError, match=r"no hard links \(EPERM\)"):
        local_store.put_once("a", b"1")


def test_a_key_below_a_file_is_refused_at_once(local_store):
    local_store.put("a", b"1")

    for write in (local_store.put, local_store.put_once):
        with pytest.raises(SettingsError, match="no part of the key a file"):
            write("a/b", b"2")


def test_a_bucket_that_does_not_exist_is_named(open_s3, bucket):
    store = open_s3()
    store._location = type(store._location)(
        scheme="s3", authority="not-there", bucket="not-there", path="out"
    )

    for call in (store.probe, lambda: store.get("a"), lambda: store.list("")):
        with pytest.raises(SettingsError, match="NoSuchBucket"):
            call()


def test_a_writer_killed_before_the_link_leaves_a_draft_that_no_listing_shows(
    local_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(Path, "hardlink_to", lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    assert in_a_child(lambda: local_store.put_once("a/b", b"half")) == -signal.SIGKILL

    assert len(list(tmp_path.rglob(".draft-*"))) == 1
    assert local_store.list("") == []
    assert local_store.list_names("a") == []
    assert not local_store.exists("a/b")


def test_old_drafts_are_swept_and_those_of_living_writers_stay(local_store, tmp_path):
    local_store.put("a/b", b"1")
    for name, age_s in (("old", 7200), ("young", 0)):
        draft = tmp_path / f"out/a/.draft-{name}"
        draft.write_bytes(b"half")
        os.utime(draft, (time.time() - age_s, time.time() - age_s))

    assert local_store.sweep_drafts(min_age_s=3600) == 1

    assert [path.name for path in tmp_path.rglob(".draft-*")] == [".draft-young"]
    assert local_store.get("a/b") == b"1"


def test_a_forked_child_reads_and_writes_and_the_parent_goes_on(store):
    store.put("a", b"parent")

    def act():
        assert store.get("a") == b"parent"
        assert store.put_once("b", b"child")

    assert in_a_child(act) == 0
    assert store.get("b") == b"child"
    assert store.put_once("c", b"parent again")


def test_one_thread_writes_while_another_reads(store):
    stop = threading.Event()

    def write() -> int:
        return sum(store.put_once(f"commits/{number}", b"x" * number) for number in range(40))

    def read() -> None:
        while not stop.is_set():
            for stored in store.list("commits"):
                assert len(store.get(stored.key)) == stored.num_bytes

    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(read)
        assert threads.submit(write).result() == 40
        stop.set()
        reading.result()


@pytest.mark.parametrize("side", ["die_before", "die_after"])
def test_a_crashing_store_dies_at_its_call_and_counts_those_of_children(store, side):
    crashing = CrashingStore(store, **{side: 3})

    def act():
        crashing.put("a", b"1")
        crashing.child("sub").put("b", b"2")
        crashing.child("sub").put("c", b"3")

    assert in_a_child(act) == -signal.SIGKILL
    keys = [stored.key for stored in store.list("")]
    assert keys == (["a", "sub/b"] if side == "die_before" else ["a", "sub/b", "sub/c"])
