"""What is refused: URIs, keys, options; and what no message ever holds."""

import subprocess
import sys
import traceback

import pytest

from pipelines.storage import open_store
from pipelines.storage.secrets import scrubbed
from schemas.errors import ContractError, PromptmillError, SettingsError

REFUSED_URIS = [
    "",
    " ",
    " data",
    "data\n",
    "da\x00ta",
    "http://example.com/a",
    "https://example.com/a.parquet",
    "HTTP://169.254.169.254/latest/meta-data",
    "ftp://host/a",
    "memory://a",
    "data:text/plain,x",
    "javascript:alert(1)",
    "simplecache::http://169.254.169.254/latest",
    "simplecache::s3://bucket/a",
    "zip://a.parquet::s3://bucket/a.zip",
    "filecache::file:///etc/passwd",
    "github://org:repo@main/a",
    "sftp://user:word@host/a",
    "reference://",
    "s3a://bucket/a",
    "gcs://bucket/a",
    "az://container/a",
    "wasbs://container@account.blob.core.windows.net/a",
    "C:\\data\\a.parquet",
    "s3:bucket/a",
    "s3://",
    "s3:///a",
    "s3://user:word@bucket/a",
    "s3://AKIAABCDEFGHIJKLMNOP@bucket/a",
    "s3://bucket:9000/a",
    "s3://127.0.0.1/a",
    "s3://bucket/../other/a",
    "s3://bucket/a/%2e%2e/b",
    "s3://bucket//a",
    "s3://bucket/a?versionId=1",
    "s3://bucket/a?X-Amz-Signature=word",
    "s3://../a",
    "gs://bucket@host/a",
    "abfs://container@evil.example.com/a",
    "abfss://container@account.dfs.core.windows.net.evil.example.com/a",
    "abfss://container:word@account.dfs.core.windows.net/a",
    "file://host/a",
    "file://../a",
    "file:a",
    "~/data",
    "\\\\server\\share",
]

REFUSED_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    ".",
    "../a",
    "a/../b",
    "a/..",
    "a/./b",
    "a//b",
    "a//",
    "%2e%2e/a",
    "a/%2E%2E/%2e%2e/b",
    "..%2fa",
    "a/%2e%2e%2fb",
    "a\x00b",
    "a%00b",
    "a\nb",
    "a\x7fb",
    "a\\b",
    "..\\a",
    "a?versionId=1",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "/".join(["abcdefgh"] * 128),
    ".draft-0",
    "a/.draft-0/b",
]


@pytest.mark.parametrize("uri", REFUSED_URIS)
def test_a_uri_outside_the_allow_list_is_refused_and_the_message_names_the_list(uri):
    with pytest.raises(SettingsError, match=r"allowed: a local path, file:///…, s3://bucket/…"):
        open_store(uri)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/data/out/", "/data/out"),
        ("file:///data/out", "/data/out"),
        ("file://localhost/data", "/data"),
        ("/data/100%25 a", "/data/100%25 a"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket.with.dots/a", "gs://bucket.with.dots/a"),
        ("abfs://container/a", "abfs://container/a"),
        (
            "abfss://container@account.dfs.core.windows.net/a",
            "abfss://container@account.dfs.core.windows.net/a",
        ),
    ],
)
def test_an_allowed_uri_is_opened_without_a_request(uri, expected):
    assert open_store(uri).uri == expected


def test_a_relative_path_is_made_absolute_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    store.put("a", b"1")

    assert (tmp_path / "out/a").read_bytes() == b"1"


@pytest.mark.parametrize("key", REFUSED_KEYS)
def test_a_key_that_could_leave_the_root_is_refused_by_every_call(store, key):
    calls = [store.get, store.exists, store.delete, store.fingerprint, store.open_read]
    calls += [lambda bad: store.put(bad, b""), lambda bad: store.put_once(bad, b"")]
    calls += [store.list, store.list_names, store.child] if key else []  # "" is the root

    for call in calls:
        with pytest.raises(ContractError, match="is refused"):
            call(key)


def test_nothing_is_written_through_a_link_that_leaves_the_root(local_store, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/link").symlink_to(outside)

    for call in (
        lambda: local_store.put("link/a", b""),
        lambda: local_store.put_once("link/deep/a", b""),
        lambda: local_store.delete("link/kept"),
    ):
        with pytest.raises(SettingsError, match="outside of the store"):
            call()

    assert [path.name for path in outside.iterdir()] == ["kept"]


def test_a_link_to_a_file_is_replaced_and_its_target_stays(local_store, tmp_path):
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").symlink_to(tmp_path / "target")

    local_store.put("a", b"new")

    assert local_store.get("a") == b"new"
    assert (tmp_path / "target").read_bytes() == b"target"


def test_an_unknown_option_is_refused_with_the_nearest_right_one():
    with pytest.raises(SettingsError, match="no option `endpoint`; did you mean `endpoint_url`"):
        open_store("s3://bucket", options={"endpoint": "http://127.0.0.1"})
    with pytest.raises(SettingsError, match="a local store has no options"):
        open_store("/data", options={"key": "word"})


def test_a_client_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(SettingsError, match=r"pip install 'promptmill\[s3\]'"):
        open_store("s3://bucket")


def test_importing_and_opening_load_no_client():
    code = (
        "import sys; from pipelines.storage import open_store; open_store('s3://bucket/a');"
        "sys.exit(bool({'fsspec', 's3fs', 'gcsfs', 'adlfs', 'botocore'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_refusal_names_the_bucket_and_no_secret(open_s3, bucket, proxy):
    store = open_s3(endpoint_url=proxy.uri)
    calls = {"PUT": lambda: store.put("a", b""), "GET": lambda: store.list("")}

    for method, call in calls.items():
        proxy.next_request(method, "denied", num_times=3)
        with pytest.raises(SettingsError, match=f"bucket `{bucket}` must exist") as caught:
            call()
        shown = "".join(traceback.format_exception(caught.value))
        assert "AccessDenied" in shown
        assert "test-secret-word" not in shown


def test_no_text_about_a_store_holds_a_credential(proxy, open_s3):
    options = {
        "key": "AKIAABCDEFGHIJKLMNOP",
        "secret": "very-secret",
        "token": "very-token",
        "endpoint_url": "http://127.0.0.1:9",
        "region": "us-east-1",
    }
    store = open_store("s3://bucket/out", options=options, deadline_s=0.1)
    with pytest.raises(PromptmillError) as caught:
        store.get("a")
    shown = "".join(traceback.format_exception(caught.value))

    for text in (shown, repr(store), store.uri, repr(store._connection), repr(store.child("b"))):
        assert not any(options[name] in text for name in ("key", "secret", "token"))


@pytest.mark.parametrize("uri", [uri for uri in REFUSED_URIS if "word" in uri or "AKIA" in uri])
def test_a_refused_uri_is_shown_without_its_credentials(uri):
    with pytest.raises(SettingsError) as caught:
        open_store(uri)

    assert "word" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "GET https://a.blob.core.windows.net/c/b?sv=1&sig=word%3D failed",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=word==;EndpointSuffix=x",
        "Authorization: Bearer word.word",
        "Credential=word/20260101/us-east-1, SignedHeaders=host",
        "known secret: word-1234",
    ],
)
def test_what_looks_like_a_secret_is_taken_out_of_a_message(text):
    assert "word" not in scrubbed(text, ["word-1234"])
