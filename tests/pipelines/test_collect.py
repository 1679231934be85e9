import os
import shutil
from pathlib import Path

import pytest

from pipelines.audit import audit
from pipelines.collect import collect, survey
from pipelines.ledger import current_run
from pipelines.run import run
from pipelines.storage import Store, open_store
from pipelines.storage.local import LocalStore
from schemas.errors import SettingsError
from tests.pipelines.echo_runs import EchoRunner


@pytest.fixture
def echo(checkpoint):
    return EchoRunner(checkpoint)


@pytest.fixture
def output(tmp_path) -> Store:
    return open_store(str(tmp_path / "out"))


def run_text(echo, write_input, make_job, text: str) -> Path:
    """Run one row of this text, and return the run's folder."""
    write_input({"id": ["a", "b"], "text": [text, None]})
    return Path(echo(make_job()).run_uri)


@pytest.fixture
def old(echo, write_input, make_job) -> Path:
    return run_text(echo, write_input, make_job, "old")


@pytest.fixture
def new(echo, old, write_input, make_job) -> Path:
    return run_text(echo, write_input, make_job, "new")


def leave_orphans(run: Path) -> set[str]:
    """Leave what workers leave that die between the parts and the commit, or lose a plan."""
    keys = {
        "generations/b0000000-0009-000000000000.parquet",
        "rejects/b0000000-0009-000000000000.parquet",
        "plan/index-00000-000000000000.parquet",
    }
    for key in keys:
        (run / key).write_bytes(b"left behind")
    return keys


def states(output: Store) -> dict[str, str]:
    return {run.run_key: run.state for run in survey(output).runs}


def test_a_survey_tells_current_superseded_unfinished_and_unplanned_runs_apart(old, new, output):
    unfinished = new.with_name("run1-" + "e" * 64)
    shutil.copytree(new, unfinished)
    (unfinished / "manifest.json").unlink()
    unplanned = new.with_name("run1-" + "f" * 64)
    (unplanned / "plan").mkdir(parents=True)
    (unplanned / "plan" / "index-00000-000000000000.parquet").write_bytes(b"a part")

    assert states(output) == {
        old.name: "superseded",
        new.name: "current",
        unfinished.name: "unfinished",
        unplanned.name: "not_planned",
    }


def test_a_survey_counts_every_byte_of_a_run_and_its_orphans(new, output):
    left = leave_orphans(new)

    found = next(run for run in survey(output).runs if run.run_key == new.name)

    assert found.num_bytes == sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    assert set(found.orphans) == left
    assert found.num_orphan_bytes == len(left) * len(b"left behind")


def test_a_place_without_runs_is_an_error_that_says_what_lies_there(new):
    with pytest.raises(SettingsError, match=r"no runs at .*\n.*\n  found: in/, out/"):
        survey(open_store(str(new.parent.parent)))


def test_collecting_takes_the_orphans_of_finished_runs_and_leaves_them_sound(old, new, output):
    left = {f"{run.name}/{key}" for run in (old, new) for key in leave_orphans(run)}

    told = collect(output, superseded=False)

    assert (told.num_deleted, told.deleted_runs) == (len(left), ())
    assert not any((Path(output.uri) / key).exists() for key in left)
    assert [audit(output.child(run.name)).faults for run in (old, new)] == [(), ()]


def test_an_unfinished_run_keeps_parts_that_no_commit_names_yet(new, output):
    left = leave_orphans(new)
    (new / "manifest.json").unlink()

    told = collect(output, superseded=True)

    assert told.num_deleted == 0
    assert all((new / key).exists() for key in left)


def test_superseded_runs_go_whole_only_when_asked_and_the_current_one_stays(old, new, output):
    collect(output, superseded=False)
    assert old.exists()

    told = collect(output, superseded=True)

    assert told.deleted_runs == (old.name,)
    assert not [path for path in old.rglob("*") if path.is_file()]
    assert current_run(output) == new.name
    assert audit(output.child(new.name)).faults == ()


class DiesAtADelete(LocalStore):
    """Deletes `num_left` objects, then dies."""

    num_left = 0

    def child(self, key_prefix):
        found = DiesAtADelete(self._root / key_prefix, deadline_s=1.0)
        found.num_left = self.num_left
        return found

    def delete(self, key):
        if self.num_left == 0:
            raise ConnectionError(key)
        self.num_left -= 1
        super().delete(key)


def test_a_crash_at_any_delete_of_a_superseded_run_leaves_it_resumable(
    echo, old, new, write_input, make_job, tmp_path
):
    num_objects = len([path for path in old.rglob("*") if path.is_file()])
    shutil.copytree(old, tmp_path / "kept")

    for num_deleted in range(num_objects):
        shutil.rmtree(old)
        shutil.copytree(tmp_path / "kept", old)
        store = DiesAtADelete(old.parent, deadline_s=1.0)
        store.num_left = num_deleted
        with pytest.raises(ConnectionError):
            collect(store, superseded=True)

        again = run_text(echo, write_input, make_job, "old")
        assert audit(open_store(str(again))).faults == ()
        run_text(echo, write_input, make_job, "new")


def test_a_half_written_file_goes_only_when_it_is_a_day_old(new, output):
    young, aged = new / ".draft-young", new / ".draft-aged"
    for draft in (young, aged):
        draft.write_bytes(b"half")
    os.utime(aged, (0, 0))

    collect(output, superseded=False)

    assert (young.exists(), aged.exists()) == (True, False)


def test_a_finished_run_of_another_partition_is_never_superseded(
    write_input, make_job, make_tools, tmp_path
):
    write_input({"id": ["a"], "text": ["x"]}, "mon.parquet")
    write_input({"id": ["b"], "text": ["y"]}, "tue.parquet")
    job = make_job(
        input={"uri": str(tmp_path / "in" / "{partition}.parquet")},
        partitions={"named": ["mon", "tue"]},
    )
    made = [run(job, make_tools(), partition=day) for day in ("mon", "tue")]

    found = collect(open_store(job.output.uri), superseded=True)
    assert {one.run_key: one.state for one in found.runs} == {
        made[0].run_key: "other_partition",
        made[1].run_key: "current",
    }
    assert found.deleted_runs == ()
    assert audit(open_store(made[0].run_uri)).faults == ()
