"""The parent's side of the engine, beside a child that plays a script."""

import time
from collections import deque

import pytest

from pipelines.engines import vllm_engine
from pipelines.engines.vllm_engine import VllmEngine, check_folder, open_vllm
from pipelines.engines.wire import answer_row, step_row
from schemas.checkpoints import Checkpoint
from schemas.errors import EngineDiedError, SettingsError
from schemas.requests import Answer, EngineRequest, SamplingSettings, StepStats, StepWork
from tests.pipelines.engines.chosen_settings import some_settings

SETTINGS = some_settings()
READY = (
    "ready",
    {
        "engine_version": "0.32.0",
        "max_model_len": 512,
        "max_num_seqs": 8,
        "kv_capacity_tokens": 4096,
        "memory_bytes": 10**9,
        "ready_at": time.monotonic() + 5.0,
        "settings": {"dtype": "bfloat16"},
    },
)
STEP = StepStats(
    started_s=0.0,
    duration_s=1.0,
    num_running=1,
    num_waiting=0,
    kv_usage_fraction=0.0,
    num_preemptions=0,
    work=(StepWork(group=0, num_prefill_tokens=1, num_decode_tokens=1, num_context_tokens=0),),
)


class ScriptedChild:
    """Returns one list of frames a time, then is silent or dead; remembers what it was sent."""

    def __init__(self, *script, dies=None):
        self.script = deque(script)
        self.sent = []
        self.ended = None
        self.dies = dies
        self.progress_at = time.monotonic()

    def send(self, value):
        self.sent.append(value)

    def receive(self, timeout_s):
        if self.script:
            self.progress_at = time.monotonic()
            return self.script.popleft()
        self.ended = self.dies
        time.sleep(min(timeout_s, 0.01))
        return []

    def kill(self):
        self.ended = "signal SIGKILL"

    close = kill


def engine_with(child, **timeouts):
    return VllmEngine(child, SETTINGS, **{"start_timeout_s": 60, "stall_timeout_s": 60, **timeouts})


def request(number, **sampling):
    settings = SamplingSettings(**{"max_tokens": 4, **sampling})
    return EngineRequest(number=number, group=0, prompt_token_ids=(1, 2), sampling=settings)


def did(*numbers, epoch=0):
    answers = [Answer(number=n, token_ids=(n,), finish_reason="stop") for n in numbers]
    return ("did", epoch, tuple(map(answer_row, answers)), (step_row(STEP),))


def test_facts_wait_for_the_engine_and_say_how_long_it_loaded():
    engine = engine_with(ScriptedChild([], [], [READY]))

    facts = engine.facts

    assert facts.device_name == "a device"
    assert facts.kv_capacity_tokens == 4096
    assert facts.load_s == pytest.approx(READY[1]["ready_at"] - engine._opened_at)
    assert facts.settings == {
        "cpu_ids": "0,2,3",
        "kv_cache_bytes": "100000000",
        "kv_cache_dtype": "auto",
        "dtype": "bfloat16",
    }


def test_answers_and_steps_come_back_as_values():
    engine = engine_with(ScriptedChild([READY, did(3)]))
    engine.submit([request(3)])

    poll = engine.poll(1.0)
    assert poll.answers == (Answer(number=3, token_ids=(3,), finish_reason="stop"),)
    assert poll.steps == (STEP,)


def test_sampling_settings_are_sent_once_per_value():
    child = ScriptedChild()
    engine = engine_with(child)
    engine.submit([request(1), request(2), request(3, max_tokens=9)])
    engine.submit([request(4)])

    (_, new, rows), (_, no_new, more_rows) = child.sent
    assert [key for key, _ in new] == [0, 1]
    assert [key for _, _, key, _ in rows] == [0, 0, 1]
    assert no_new == []
    assert [key for _, _, key, _ in more_rows] == [0]


def test_many_sampling_settings_are_forgotten_on_both_sides():
    child = ScriptedChild()
    engine = engine_with(child)
    for start in (0, 3000):
        engine.submit([request(n, temperature=1.0, seed=n) for n in range(start, start + 3000)])

    kinds = [frame[0] for frame in child.sent]
    assert kinds == ["ask", "forget", "ask"]
    assert len(child.sent[2][1]) == 3000


def test_neither_answers_nor_steps_of_requests_that_were_dropped_are_returned():
    child = ScriptedChild([READY, did(1)], [did(2)], [did(1, epoch=1)])
    engine = engine_with(child)
    engine.submit([request(1), request(2)])
    engine.poll(1.0)
    engine.reset()
    engine.submit([request(1)])

    after = engine.poll(1.0)
    assert [answer.number for answer in after.answers] == [1]
    assert len(after.steps) == 1


def test_what_came_before_a_death_is_returned_first():
    engine = engine_with(ScriptedChild([READY, did(1)], dies="exit code 1 after 5.0 s"))
    engine.submit([request(1), request(2)])

    assert [answer.number for answer in engine.poll(1.0).answers] == [1]
    with pytest.raises(EngineDiedError, match=r"died while it answered: exit code 1 after 5\.0 s"):
        engine.poll(1.0)


def test_a_death_while_loading_is_told_apart():
    engine = engine_with(ScriptedChild(dies="signal SIGKILL after 1.0 s"))

    with pytest.raises(EngineDiedError, match="died while it was loading: signal SIGKILL"):
        _ = engine.facts


def test_a_dead_engine_takes_no_requests():
    child = ScriptedChild([READY])
    engine = engine_with(child)
    _ = engine.facts
    child.ended = "exit code 1"

    with pytest.raises(EngineDiedError):
        engine.submit([request(1)])
    with pytest.raises(EngineDiedError):
        engine.poll(1.0)


def test_silence_with_requests_waiting_is_a_stall():
    child = ScriptedChild([READY])
    engine = engine_with(child, stall_timeout_s=0.2)
    _ = engine.facts
    engine.submit([request(1)])

    with pytest.raises(EngineDiedError, match=r"1 request\(s\) waiting within 0\.2 s") as death:
        engine.poll(5.0)
    assert death.value.is_stall
    assert child.ended == "signal SIGKILL"


def test_silence_without_requests_is_no_stall():
    engine = engine_with(ScriptedChild([READY]), stall_timeout_s=0.05)
    _ = engine.facts

    assert engine.poll(0.2).answers == ()


def test_an_engine_that_is_not_ready_in_time_is_killed():
    child = ScriptedChild()
    engine = engine_with(child, start_timeout_s=0.1)

    with pytest.raises(EngineDiedError, match=r"was not ready within 0\.1 s"):
        _ = engine.facts
    assert child.ended == "signal SIGKILL"


def test_settings_that_vllm_refuses_are_the_callers_to_change():
    engine = engine_with(ScriptedChild([("refused", "ValueError: max_model_len\n is too long")]))

    for _ in range(2):
        with pytest.raises(SettingsError, match="ValueError: max_model_len is too long"):
            _ = engine.facts


def test_a_closed_engine_is_dead():
    with engine_with(ScriptedChild([READY])) as engine:
        pass
    engine.close()

    with pytest.raises(EngineDiedError, match="closed"):
        engine.poll(0.0)


# ------------------------------------------------------------------------------------- opening


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


def test_a_model_folder_is_config_and_safetensors(folder):
    check_folder(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(SettingsError, match="safetensors"):
        check_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_folder_that_brings_code_is_refused(folder, name):
    (folder / name).write_text('{"auto_map": {"AutoModel": "evil.Model"}}')

    with pytest.raises(SettingsError, match=f"{name}: `auto_map` names code"):
        check_folder(folder)


@pytest.mark.parametrize(("kind", "extra"), [("cpu", "cpu"), ("cuda", "gpu")])
def test_without_vllm_the_error_names_what_to_install(monkeypatch, folder, kind, extra):
    monkeypatch.setattr(vllm_engine, "find_spec", lambda _name: None)
    checkpoint = Checkpoint(
        path=str(folder),
        model_id="m",
        model_revision=None,
        weights="int8",
        quantization=None,
        files=(),
        weights_hash="h",
    )

    with pytest.raises(SettingsError, match=rf"pip install 'promptmill\[{extra}\]'"):
        open_vllm(checkpoint, some_settings(kind), environment={})
