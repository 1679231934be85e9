import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks.compare import Start, WorkDiffersError, check_same_work, run
from benchmarks.contenders.task import Measured, Task
from benchmarks.roster import BY_NAME, plain_environment
from benchmarks.workloads import mixed_lengths

WORKLOAD = mixed_lengths(3)
RIGHT = Measured(
    load_s=1.0,
    seconds=1.0,
    num_prompt_tokens=300,
    num_cached_tokens=0,
    num_output_tokens=sum(ask.max_tokens for ask in WORKLOAD.asks),
    answers={ask.row: "said" for ask in WORKLOAD.asks},
)


def differing(**changes) -> dict[str, list[Measured]]:
    return {"llm-defaults": [RIGHT], "promptmill": [dataclasses.replace(RIGHT, **changes)]}


def test_the_same_work_passes():
    check_same_work(WORKLOAD, differing())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": {}}, "promptmill left 3 of 3 unanswered"),
        ({"num_output_tokens": 1}, "promptmill made 1 output tokens, expected"),
        ({"num_prompt_tokens": 299}, r"promptmill had 299 prompt tokens, LLM.generate \{300\}"),
    ],
)
def test_other_work_is_no_comparison(changes, message):
    with pytest.raises(WorkDiffersError, match=message):
        check_same_work(WORKLOAD, differing(**changes))


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
