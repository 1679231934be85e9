"""The engine's own process: vLLM, its model, and one loop. The only module that runs vLLM.

    python -m pipelines.engines.vllm_child PARENT_PID

The parent (vllm_engine.py) sets the environment before this Python starts: what is preloaded,
bound to cores and kept off the network cannot be changed later. vLLM's engine core runs in
this process, which measured 2 % faster than in one of its own and starts in 3 s, not 14 s.

The loop takes what has arrived, makes a step, sends what is finished. It blocks only while
nothing is asked. When the parent's pipe ends, this process ends, at once.

Frames in:  (start, arguments), (ask, new sampling settings, requests), (forget,), (reset, epoch),
            (limit, sequences, tokens of a step)
Frames out: (refused, why), (ready, facts), (did, epoch, answers, steps)
"""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Never, cast

from pipelines.engines.child_side import Pipes, leave, take_pipes
from pipelines.engines.energy import EnergyMeter, gpu_counter
from pipelines.engines.vllm_loading import facts, limit, load
from pipelines.engines.vllm_requests import (
    Limits,
    answer_of_output,
    first_line,
    refusal,
    refused,
    request_errors,
    sampling_params,
)
from pipelines.engines.vllm_steps import StepRecorder
from pipelines.engines.wire import Row, answer_row, sampling_of, step_row
from schemas.requests import Answer, EngineRequest, SamplingSettings, StepStats

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.v1.engine.llm_engine import LLMEngine

_SEND_EVERY_S = 0.05
"""Steps without a finished answer wait this long, so that fast devices do not wake the parent
a hundred times a second."""

_NO_WORK_PAUSE_S = 0.001


def main() -> Never:
    """Load what the first frame says, then answer until the parent is gone."""
    pipes = take_pipes(int(sys.argv[1]))
    frames = pipes.inbox.read(is_blocking=True)
    if not frames:
        return leave(0)
    recorder = StepRecorder()
    try:
        engine = load(frames[0][1], recorder)
    except (ImportError, OSError, ValueError) as error:
        # vLLM refuses settings and folders with these; all else is a death, with a traceback.
        pipes.send(("refused", f"{type(error).__name__}: {error}"))
        return leave(2)
    with contextlib.suppress(BrokenPipeError):
        pipes.send(("ready", facts(engine)))
        _Server(engine, recorder, pipes).run(frames[1:])
    return leave(0)


class _Server:
    """The loop and what it remembers: requests in the engine, settings in use."""

    def __init__(self, engine: "LLMEngine", recorder: StepRecorder, pipes: Pipes) -> None:
        self._engine = engine
        self._recorder = recorder
        self._pipes = pipes
        config = engine.vllm_config
        cache = config.cache_config
        self._limits = Limits(
            max_model_len=config.model_config.max_model_len,
            vocab_size=config.model_config.get_vocab_size(),
            kv_capacity_tokens=(cache.num_gpu_blocks or 0) * cache.block_size,
        )
        self._epoch = 0
        self._sampling: dict[int, tuple[SamplingSettings, SamplingParams | str]] = {}
        self._asked: dict[str, tuple[int, SamplingSettings]] = {}
        self._answers: list[Answer] = []
        self._steps: list[StepStats] = []
        self._sent_at = 0.0
        self._energy = EnergyMeter(gpu_counter(config.parallel_config.tensor_parallel_size))

    def run(self, frames: Sequence[Row]) -> None:
        """Serve until the parent is gone; `frames` have arrived already.

        A step's time runs from the end of the step before it, so that nothing the loop does
        is left out, but not over the time in which nothing was asked.
        """
        began = time.monotonic()
        arrived = frames
        while not self._pipes.inbox.is_closed:
            for frame in arrived:
                self._take(frame)
            if self._engine.has_unfinished_requests():
                began = self._step(began)
            is_idle = not self._engine.has_unfinished_requests()
            self._send(is_due=is_idle)
            arrived = self._pipes.inbox.read(is_blocking=is_idle)
            if is_idle:
                began = time.monotonic()
                self._energy.skip()

    def _step(self, began: float) -> float:
        """Make one step; return when it ended, or `began` if nothing was computed in it."""
        outputs = cast("list[RequestOutput]", self._engine.step())
        for output in outputs:
            number, sampling = self._asked.pop(output.request_id)
            self._answers.append(answer_of_output(number, sampling, output))
        ended = time.monotonic()
        step = self._recorder.take(began, ended)
        if step is None:
            # All that is left waits for a grammar to be compiled, in another thread.
            time.sleep(_NO_WORK_PAUSE_S)
            return began
        self._steps.append(step)
        return ended

    def _send(self, *, is_due: bool) -> None:
        """Send what has gathered, if there are answers, or it is time."""
        now = time.monotonic()
        if not (self._answers or (self._steps and (is_due or now - self._sent_at > _SEND_EVERY_S))):
            return
        answers = map(answer_row, self._answers)
        steps = map(step_row, self._energy.metered(self._steps))
        self._pipes.send(("did", self._epoch, tuple(answers), tuple(steps)))
        self._answers, self._steps, self._sent_at = [], [], now

    def _take(self, frame: Row) -> None:
        kind = frame[0]
        if kind == "ask":
            for key, row in frame[1]:
                self._sampling[key] = _prepared(sampling_of(row))
            for number, group, key, token_ids in frame[2]:
                self._ask(number, group, key, token_ids)
        elif kind == "forget":
            self._sampling.clear()
        elif kind == "reset":
            self._engine.abort_request(list(self._asked))
            self._asked.clear()
            self._answers, self._steps = [], []
            self._epoch = frame[1]
        elif kind == "limit":
            limit(self._engine, max_num_seqs=frame[1], max_num_batched_tokens=frame[2])
        else:
            raise ValueError(f"a frame of kind {kind!r}")

    def _ask(self, number: int, group: int, key: int, token_ids: tuple[int, ...]) -> None:
        sampling, params = self._sampling[key]
        request = EngineRequest(
            number=number, group=group, prompt_token_ids=token_ids, sampling=sampling
        )
        error = refusal(request, self._limits)
        if error is not None or isinstance(params, str):
            self._answers.append(refused(number, error or str(params)))
            return
        # After a reset numbers begin anew, while vLLM may still speak of the old ones.
        name = f"{self._epoch}-{number}"
        try:
            added = self._engine.add_request(
                name, {"type": "token", "prompt_token_ids": list(token_ids)}, params
            )
        except request_errors() as error:
            # It may have got half way in; left there, the engine would step for it for ever.
            self._engine.abort_request([name])
            self._answers.append(refused(number, f"vLLM refused it: {first_line(error)}"))
            return
        self._asked[name] = (number, sampling)
        self._recorder.add(added, group=group, num_prompt_tokens=len(token_ids))


def _prepared(sampling: SamplingSettings) -> "tuple[SamplingSettings, SamplingParams | str]":
    """Return the settings and vLLM's form of them, or why vLLM does not take them."""
    try:
        return sampling, sampling_params(sampling)
    except request_errors() as error:
        return sampling, f"vLLM refused the sampling settings: {first_line(error)}"


if __name__ == "__main__":
    main()
