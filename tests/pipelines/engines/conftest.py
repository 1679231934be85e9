"""A real engine on the bundled INT8 model, for tests marked `engine`."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer

from jobs.settings import read_settings
from pipelines import models, quantize
from pipelines.engines import VllmEngine, open_vllm
from pipelines.engines.choosing import engine_settings
from pipelines.engines.settings import EngineDevice
from schemas.checkpoints import Checkpoint
from schemas.engine_overrides import EngineOverrides
from schemas.requests import Answer, EngineRequest, SamplingSettings, StepStats

MAX_MODEL_LEN = 256
PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="session")
def int8_checkpoint() -> Checkpoint:
    """The bundled model in INT8; made once and kept where `promptmill run` keeps it."""
    folder = os.environ.get("PROMPTMILL_TEST_CHECKPOINT")
    if folder is not None:
        return Checkpoint(
            path=folder,
            model_id="test",
            model_revision=None,
            weights="int8",
            quantization="W8A8",
            files=(),
            weights_hash="test",
        )
    cache_dir = read_settings().cache_dir
    return quantize.prepare(models.BUNDLED_ID, weights="int8", cache_dir=cache_dir, report=print)


@pytest.fixture(scope="session")
def open_engine(int8_checkpoint: Checkpoint) -> Callable[..., VllmEngine]:
    """Starts the real engine with short sequences, on one core.

    On one core and not on all: with other work beside it, threads that wait for each other
    make a step take ten times as long.
    """
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    device = EngineDevice(
        kind="cpu",
        name="the tests' CPU",
        cpu_ids=tuple(sorted(os.sched_getaffinity(0)))[:1],
        free_memory_bytes=psutil.virtual_memory().available,
    )

    def opened(**others: Any) -> VllmEngine:
        settings = engine_settings(
            device,
            int8_checkpoint,
            max_model_len=MAX_MODEL_LEN,
            overrides=EngineOverrides(max_num_seqs=8),
        )
        return open_vllm(int8_checkpoint, settings, environment=os.environ, **others)

    return opened


@pytest.fixture(scope="session")
def tokenizer(int8_checkpoint: Checkpoint) -> Tokenizer:
    return Tokenizer.from_file(str(Path(int8_checkpoint.path) / "tokenizer.json"))


@pytest.fixture(scope="module")
def engine_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine") / "engine.log"


@pytest.fixture(scope="module")
def engine(open_engine: Callable[..., VllmEngine], engine_log: Path) -> Iterator[VllmEngine]:
    """The module's engine; tests leave it idle."""
    with open_engine(log=engine_log) as opened:
        _ = opened.facts
        yield opened


@pytest.fixture(scope="session")
def make_request(tokenizer: Tokenizer) -> Callable[..., EngineRequest]:
    """Makes a greedy request of a user's message, or of tokens."""

    def made(number: int, prompt: "str | tuple[int, ...]", **fields: Any) -> EngineRequest:
        tokens = (
            tuple(tokenizer.encode(PROMPT.format(prompt)).ids)
            if isinstance(prompt, str)
            else prompt
        )
        group = fields.pop("group", 0)
        sampling = SamplingSettings(**{"max_tokens": 8, **fields})
        return EngineRequest(number=number, group=group, prompt_token_ids=tokens, sampling=sampling)

    return made


def answers_of(
    engine: VllmEngine, requests: list[EngineRequest]
) -> tuple[dict[int, Answer], list[StepStats]]:
    """Return the answers by number, and the steps they took."""
    engine.submit(requests)
    answers: dict[int, Answer] = {}
    steps: list[StepStats] = []
    while len(answers) < len(requests):
        poll = engine.poll(60.0)
        for answer in poll.answers:
            assert answer.number not in answers
            answers[answer.number] = answer
        steps += poll.steps
    return answers, steps
