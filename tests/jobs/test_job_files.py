import pytest
import yaml

from jobs.job_files import load_job
from schemas.errors import SettingsError

FIELDS = {
    "name": "small",
    "input": {"uri": "in/{partition}.parquet"},
    "prompt": {"column": "text"},
    "model": {"id": "m"},
    "partitions": {"daily": {"start": "2026-11-01"}},
}


@pytest.fixture
def write(tmp_path):
    """Writes small.yaml, from fields or as text."""

    def written(content):
        path = tmp_path / "small.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return written


def test_all_partitions_to_one_output_is_refused_in_a_file_and_not_for_one_command(write):
    path = write({**FIELDS, "output": {"uri": "out"}})

    with pytest.raises(SettingsError, match="uri does not hold"):
        load_job(path)
    assert load_job(path, ["output.uri=elsewhere"]).output.uri == "elsewhere"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nprompt:\n  user: {{ title }}\n", "needs quotes"),
        ("name: a\nname: b\n", "stands twice, again in line 2"),
        ("name: [a\n", "line 2"),
        ("- a\n", "expected keys and values"),
    ],
)
def test_a_slip_of_yaml_is_one_clear_line(text, said, write):
    with pytest.raises(SettingsError) as caught:
        load_job(write(text))

    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_job_is_named_as_its_file_is(write):
    with pytest.raises(SettingsError, match="file's name says small"):
        load_job(write({**FIELDS, "name": "large"}))
