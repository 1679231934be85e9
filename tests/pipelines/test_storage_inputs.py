"""Which files a job file's `input.uri` means, on a folder and in a bucket."""

import pytest

from pipelines.storage import expand_input
from schemas.errors import SettingsError
from tests.conftest import S3_OPTIONS

KEYS = [
    "prompts.parquet",
    "readme.md",
    "day=1/a.parquet",
    "day=1/b.parquet",
    "day=2/a.parquet",
    "day=2/deep/er/c.parquet",
    "day=2/notes.txt",
    "day=10/_SUCCESS",
    "day=10/_temporary/x.parquet",
    "day=10/.hidden.parquet",
    "day=10/[z].parquet",
    "spark.parquet/part-0.parquet",
    "other/prompts_v2.pq",
]


@pytest.fixture
def expand(store, s3_port):
    """Fills the store, and expands URIs that begin at its root."""
    for key in KEYS:
        store.put(key, b"")
    options = {"endpoint_url": f"http://127.0.0.1:{s3_port}", **S3_OPTIONS}

    def expanded(path: str):
        return expand_input(
            f"{store.uri}{path}", options=options if "://" in store.uri else None, deadline_s=20
        )

    return expanded


@pytest.mark.parametrize(
    ("path", "root", "keys"),
    [
        ("/prompts.parquet", "", ["prompts.parquet"]),
        ("/other/prompts_v2.pq", "/other", ["prompts_v2.pq"]),
        ("/day=1", "/day=1", ["a.parquet", "b.parquet"]),
        ("/day=1/", "/day=1", ["a.parquet", "b.parquet"]),
        ("/day=2", "/day=2", ["a.parquet", "deep/er/c.parquet"]),
        ("/day=10", "/day=10", ["[z].parquet"]),
        ("/spark.parquet", "/spark.parquet", ["part-0.parquet"]),
        ("/*.parquet", "", ["prompts.parquet", "spark.parquet/part-0.parquet"]),
        ("/day=?/a.parquet", "", ["day=1/a.parquet", "day=2/a.parquet"]),
        ("/day=*/*", "", [*KEYS[2:6], "day=2/notes.txt", "day=10/[z].parquet"]),
        ("/day=2/**", "/day=2", ["a.parquet", "deep/er/c.parquet"]),
        ("/**/c.parquet", "", ["day=2/deep/er/c.parquet"]),
        ("/**/*.parquet", "", [key for key in KEYS if key.endswith(".parquet")]),
        ("/day=10/_t*/x.parquet", "/day=10", ["_temporary/x.parquet"]),
        ("/day=10/[z].parquet", "/day=10", ["[z].parquet"]),
    ],
)
def test_a_file_a_folder_and_a_pattern_mean_their_parquet_files(expand, store, path, root, keys):
    hidden = {"day=10/_temporary/x.parquet", "day=10/.hidden.parquet"}
    expected = keys if root else [key for key in keys if key not in hidden]

    found, found_keys = expand(path)

    assert found.uri == store.uri + root
    assert found_keys == sorted(expected)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/promts.parquet", "did you mean `prompts.parquet`"),
        ("/day=1/c.parquet", "2 names: a.parquet, b.parquet"),
        ("/other", "1 names: prompts_v2.pq"),
        ("/otter/x/y.parquet", "did you mean `other`"),
        ("/day=1/*.pq", "2 names: a.parquet, b.parquet"),
        ("/dya=1/*.parquet", "did you mean `day=1`"),
    ],
)
def test_where_there_is_no_file_the_message_says_what_is_there(expand, path, found):
    with pytest.raises(SettingsError, match="expected: one file, a folder with") as caught:
        expand(path)

    assert found in str(caught.value)
    assert path in str(caught.value)


def test_relative_files_folders_and_patterns_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.parquet").write_bytes(b"")

    for uri in ("in/a.parquet", "in", "./in/", "in/*.parquet", "*/a.parquet", "file://{}/in"):
        store, keys = expand_input(uri.format(tmp_path))
        assert [f"{store.uri}/{key}" for key in keys] == [f"{tmp_path}/in/a.parquet"]


def test_a_link_to_a_file_is_an_input_and_a_loop_of_folders_ends(tmp_path):
    (tmp_path / "real.parquet").write_bytes(b"1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.parquet").symlink_to(tmp_path / "real.parquet")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/broken.parquet").symlink_to(tmp_path / "nothing")

    store, keys = expand_input(f"{tmp_path}/in/**")

    assert keys == ["a.parquet"]
    assert store.get("a.parquet") == b"1"


@pytest.mark.parametrize(
    "uri",
    [
        "https://host/a.parquet",
        "https://host/*.parquet",
        "simplecache::s3://bucket/*.parquet",
        "s3://*/a.parquet",
        "s3://user:word@bucket/*.parquet",
        "s3://bucket/a.parquet?X-Amz-Signature=word",
        "s3://bucket/*/../a.parquet",
        "memory://a/**",
    ],
)
def test_an_input_outside_the_allow_list_is_refused_without_its_credentials(uri):
    with pytest.raises(SettingsError) as caught:
        expand_input(uri)

    assert "word" not in str(caught.value)


def test_a_file_whose_name_cannot_be_a_key_is_named(tmp_path):
    (tmp_path / "a\nb.parquet").write_bytes(b"")

    with pytest.raises(SettingsError, match="rename it"):
        expand_input(str(tmp_path))
