"""How vLLM's process ends: each test starts one, some 5 seconds on a quiet machine."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pipelines.engines.child_process import ROOT
from schemas.errors import EngineDiedError, SettingsError
from tests.pipelines.engines import conftest
from tests.pipelines.engines.processes import is_gone_within, is_group_empty

pytestmark = [pytest.mark.engine, pytest.mark.slow]

QUESTION = "What is the capital of France?"


def poll_until_dead(engine):
    while True:
        engine.poll(5.0)


def test_a_stopped_engine_is_a_stall_and_nothing_of_it_is_left(open_engine, make_request, tmp_path):
    with open_engine(log=tmp_path / "log", stall_timeout_s=2.0) as engine:
        _ = engine.facts
        engine.submit([make_request(1, QUESTION, max_tokens=200, ignore_eos=True)])
        engine.poll(30.0)
        pid = engine._child.pid
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(EngineDiedError) as death:
            poll_until_dead(engine)
        assert death.value.is_stall
        assert is_group_empty(pid)


def test_a_killed_engine_is_dead_within_two_seconds(open_engine, make_request, tmp_path):
    with open_engine(log=tmp_path / "log") as engine:
        _ = engine.facts
        engine.submit([make_request(1, QUESTION, max_tokens=200, ignore_eos=True)])
        engine.poll(30.0)
        os.kill(engine._child.pid, signal.SIGKILL)
        began = time.monotonic()

        with pytest.raises(EngineDiedError, match="signal SIGKILL after"):
            poll_until_dead(engine)
        assert time.monotonic() - began < 2.0
        assert is_group_empty(engine._child.pid)


def test_closing_a_busy_engine_leaves_no_process(open_engine, make_request, tmp_path):
    engine = open_engine(log=tmp_path / "log")
    engine.submit([make_request(1, QUESTION, max_tokens=200, ignore_eos=True)])
    _ = engine.facts
    engine.poll(30.0)

    engine.close()

    assert is_group_empty(engine._child.pid)


def test_an_engine_whose_parent_is_killed_is_gone_within_five_seconds(int8_checkpoint):
    code = (
        "import os, sys, time\n"
        "from pipelines.engines import open_vllm\n"
        "from pipelines.engines.choosing import engine_settings\n"
        "from pipelines.engines.settings import EngineDevice\n"
        "from schemas.checkpoints import Checkpoint\n"
        "checkpoint = Checkpoint(path=sys.argv[1], model_id='m', model_revision=None,\n"
        "    weights='int8', quantization=None, files=(), weights_hash='h')\n"
        "device = EngineDevice(kind='cpu', name='x', cpu_ids=(0,), free_memory_bytes=4 * 10**9)\n"
        "settings = engine_settings(device, checkpoint, max_model_len=256)\n"
        "engine = open_vllm(checkpoint, settings, environment=os.environ)\n"
        "_ = engine.facts\n"
        "print(engine._child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code, int8_checkpoint.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()

    assert is_gone_within(pid, 5.0)


def test_a_folder_that_vllm_cannot_load_is_refused_as_settings(
    open_engine, int8_checkpoint, tmp_path, monkeypatch
):
    """The model's own context is 8,192 tokens; vLLM refuses more."""
    monkeypatch.setattr(conftest, "MAX_MODEL_LEN", 10_000)

    with open_engine(log=tmp_path / "log") as engine, pytest.raises(SettingsError, match="10000"):
        _ = engine.facts
