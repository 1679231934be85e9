"""The spool's folder: gone afterwards, also after a process that could not clean up."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.spool import spool_folder

_DIES = """
import os, signal
from pipelines.spool import spool_folder

with spool_folder() as folder:
    (folder / "000000.arrow").write_bytes(b"x")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_processs_folder_is_removed_by_the_next_plan_and_a_living_ones_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run(
        [sys.executable, "-c", _DIES], env=environment, stdout=subprocess.PIPE, check=False
    )
    left = Path(killed.stdout.decode().strip())
    assert killed.returncode == -signal.SIGKILL
    assert left.is_dir()
    with spool_folder() as living:
        assert left.is_dir()  # so young a folder may be one that is just being made
        for folder in (left, living):
            os.utime(folder / "lock", (0, 0))

        with spool_folder() as own:
            assert own.is_dir()
            assert living.is_dir()
            assert not left.exists()
    assert list(tmp_path.iterdir()) == []
