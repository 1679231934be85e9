import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.contenders.task import Task
from benchmarks.roster import BY_NAME, plain_environment
from benchmarks.starting import Start, run


def started(folder: Path, **changes) -> Start:
    task = Task(
        model="no-such-model",
        folder=str(folder),
        prompts=[],
        is_fixed_length=True,
        choices=[],
        engine={},
        job={},
    )
    contender = dataclasses.replace(BY_NAME["promptmill"], **changes)
    return Start(contender=contender, environment=plain_environment(), task=task)


def test_a_contender_whose_python_is_not_there_is_not_installed(tmp_path):
    with pytest.raises(RuntimeError, match="not installed"):
        run(started(tmp_path, python=tmp_path / "python"))


def test_a_contender_that_fails_keeps_no_figures_of_an_earlier_run(tmp_path):
    (tmp_path / "measured.json").write_text("{}")

    with pytest.raises(RuntimeError, match="failed with exit code 1"):
        run(started(tmp_path, script="no_such_script", python=Path(sys.executable)))
    assert not (tmp_path / "measured.json").exists()


def test_a_plain_environment_holds_no_engine_settings(monkeypatch):
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "0-1", "OMP_NUM_THREADS": "1", "LD_PRELOAD": "no.so"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert not settings.keys() & plain_environment().keys()


@pytest.mark.parametrize("script", sorted({one.script for one in BY_NAME.values()}))
def test_the_script_of_every_contender_finds_what_it_imports(script):
    assert importlib.import_module(f"benchmarks.contenders.{script}").main
