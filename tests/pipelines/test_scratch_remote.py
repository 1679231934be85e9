"""What every store promises, each sentence on a folder and on a bucket."""

import io
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.storage import StoredObject, open_store
from schemas.errors import SettingsError

import itertools, urllib.request, json, os
import pytest as _p
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"]="false"
_n=itertools.count(int(__import__("time").time())%100000*100)
@_p.fixture(params=["az","gs"])
def store(request):
    from pipelines.storage import open_store
    b=f"bucket-{next(_n)}"
    if request.param=="az":
        cs="DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:10555/devstoreaccount1;"
        s=open_store(f"abfs://{b}/out", options={"connection_string":cs}, deadline_s=20)
        s._connection.file_system().mkdir(b)
        return s
    urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:10666/storage/v1/b", data=json.dumps({"name":b}).encode(), headers={"Content-Type":"application/json"}, method="POST"))
    return open_store(f"gs://{b}/out", options={"endpoint_url":"http://127.0.0.1:10666","token":"anon"}, deadline_s=20)
MIB = 2**20


@pytest.mark.parametrize(
    "key",
    [
        "a.json",
        "deep/er/than/that.json",
        "grüße/東京/😀.json",
        "100%/a b+c=d&e#f~.json",
        "x%2Fy",
        "*[a]",
    ],
)
@pytest.mark.parametrize("content", [b"", b"\x00\xff one \n--==0==-- two"])
def test_what_was_put_is_got_back_listed_and_found(store, key, content):
    store.put(key, content)

    assert store.get(key) == content
    assert store.exists(key)
    assert store.list("") == [StoredObject(key=key, num_bytes=len(content))]
    with store.open_read(key) as source:
        assert source.read() == content


def test_a_put_replaces_what_was_there(store):
    store.put("a", b"first and longer")

    store.put("a", b"second")

    assert store.get("a") == b"second"


@pytest.mark.parametrize("num_bytes", [3, MIB], ids=["small", "1 MiB"])
def test_of_16_racing_writers_exactly_one_is_told_that_it_won_and_its_bytes_stay(store, num_bytes):
    bodies = [b"%03d" % number * (num_bytes // 3) for number in range(16)]
    gate = threading.Barrier(16)

    def write(key: str, body: bytes) -> bool:
        gate.wait()
        return store.put_once(key, body)

    with ThreadPoolExecutor(16) as writers:
        for key in (f"commits/{number}.json" for number in range(30)):
            told = list(writers.map(lambda body, key=key: write(key, body), bodies))
            assert told.count(True) == 1
            assert store.get(key) == bodies[told.index(True)]


def test_a_writer_of_the_same_bytes_is_told_that_they_are_there(store):
    assert store.put_once("a", b"same")
    assert store.put_once("a", b"same")
    assert not store.put_once("a", b"other")
    assert store.get("a") == b"same"


def test_a_body_over_100_mb_is_one_put_and_can_be_created_only_once(store):
    body = os.urandom(MIB) * 101

    assert store.put_once("part.parquet", body)
    assert not store.put_once("part.parquet", body[:-1])

    assert store.get("part.parquet") == body
    # The tag of an S3 object that came in parts ends in "-" and their number.
    assert store.fingerprint("part.parquet").count("-") == (2 if "s3" in store.uri else 1)


def test_a_listing_sees_a_key_as_soon_as_it_is_put_and_no_longer_once_it_is_deleted(store):
    assert store.list("commits/") == []

    store.put_once("commits/1.json", b"{}")
    listed = store.list("commits/")
    store.delete("commits/1.json")

    assert listed == [StoredObject(key="commits/1.json", num_bytes=2)]
    assert store.list("commits/") == []


def test_a_listing_of_1100_keys_is_whole_and_sorted(store):
    keys = [f"commits/{number:04}.json" for number in range(1100)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda key: store.put(key, key.encode()), reversed(keys)))

    assert [stored.key for stored in store.list("commits")] == keys


@pytest.mark.parametrize("prefix", ["a", "a/"])
def test_a_listing_leaves_out_folders_whose_name_only_begins_alike(store, prefix):
    for key in ("a/1", "a/b/2", "ab/3", "a-b/4", "a.json", "z/a/5"):
        store.put(key, b"")

    assert [stored.key for stored in store.list(prefix)] == ["a/1", "a/b/2"]


def test_a_folder_that_does_not_exist_is_empty(store):
    assert store.list("") == []
    assert store.list("nothing/here") == []
    assert store.list_names("nothing/here") == []


def test_names_are_those_directly_in_a_folder_and_folders_end_in_a_slash(store):
    for key in ("a/1", "a/b/2", "ab/3", "top"):
        store.put(key, b"")

    assert store.list_names("") == ["a/", "ab/", "top"]
    assert store.list_names("a") == ["1", "b/"]


@pytest.mark.parametrize("key", ["nothing", "folder", "file/below"])
def test_what_is_not_an_object_is_not_found(store, key):
    store.put("folder/a", b"")
    store.put("file", b"")

    assert not store.exists(key)
    for read in (store.get, store.open_read, store.fingerprint):
        with pytest.raises(FileNotFoundError):
            read(key)


def test_deleting_what_is_not_there_changes_nothing(store):
    store.put("folder/a", b"")

    for key in ("nothing", "folder", "nothing/at/all"):
        store.delete(key)

    assert store.get("folder/a") == b""


def test_a_child_is_the_folder_of_its_parent(store):
    child = store.child("runs").child("2026/")
    child.put("plan.json", b"{}")

    assert child.uri == f"{store.uri}/runs/2026"
    assert store.get("runs/2026/plan.json") == b"{}"
    assert [stored.key for stored in child.list("")] == ["plan.json"]


def test_the_probe_passes_and_leaves_no_object(store):
    store.probe()

    assert store.list("") == []


def test_the_probe_refuses_a_store_where_the_second_writer_wins(store, monkeypatch):
    monkeypatch.setattr(store, "_create", store._replace)

    with pytest.raises(SettingsError, match="the second must lose"):
        store.probe()


def test_the_probe_refuses_a_store_that_says_no_and_overwrites(store, monkeypatch):
    def overwrite(key, content):
        was_there = store.exists(key)
        store._replace(key, content)
        if was_there:
            raise FileExistsError(key)

    monkeypatch.setattr(store, "_create", overwrite)

    with pytest.raises(SettingsError, match="the second must lose"):
        store.probe()


def test_one_row_group_of_a_parquet_file_is_read_by_seeking(store):
    table = pa.table({"n": pa.array(range(400_000), pa.int64())})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=100_000, compression="none")
    store.put("prompts.parquet", buffer.getvalue())

    with store.open_read("prompts.parquet") as source:
        group = pq.ParquetFile(source).read_row_group(2)

    assert group.equals(table.slice(200_000, 100_000))


def test_an_open_object_is_a_file_like_any_other(store):
    content = os.urandom(3 * MIB + 17)
    store.put("a", content)

    with store.open_read("a") as source:
        assert source.seek(-7, io.SEEK_END) == len(content) - 7
        assert source.read(100) == content[-7:]
        assert source.read(1) == b""
        assert source.seek(MIB - 3) == MIB - 3
        assert source.read(2 * MIB) == content[MIB - 3 : 3 * MIB - 3]
        assert source.tell() == 3 * MIB - 3
        assert source.read() == content[3 * MIB - 3 :]


def test_a_fingerprint_follows_the_content_and_not_the_key(store):
    store.put("a/1", b"same")
    store.put("b/2", b"same")
    before = store.fingerprint("a/1")
    assert store.fingerprint("b/2") == before

    store.put("a/1", b"more")

    assert store.fingerprint("a/1") != before


def test_a_fingerprint_of_a_local_file_is_the_sha256_of_its_bytes(local_store):
    local_store.put("a", b"abc")

    assert local_store.fingerprint("a") == (
        "sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_store_is_opened_again_by_its_uri(local_store):
    local_store.put("a", b"1")

    assert open_store(local_store.uri).get("a") == b"1"


def test_local_files_and_folders_are_closed_to_others(local_store, tmp_path):
    local_store.put("one/two/a", b"")
    local_store.put_once("one/two/b", b"")

    assert _mode(tmp_path / "out/one/two/a") == _mode(tmp_path / "out/one/two/b") == 0o600
    assert _mode(tmp_path / "out") == _mode(tmp_path / "out/one/two") == 0o700


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
