"""An engine without a model: it answers with the end of the prompt, at any speed, with any fault.

For tests of the data plane, its benchmarks, and for trying a job file. Its answers mean
nothing, but they tell which prompt they answer. It keeps every promise of `Engine`, and works
"in the background" as a real one does: what its clock says is finished is there at the next
poll, whatever its caller did meanwhile.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from pipelines.engines.closing import ClosedByBlock
from pipelines.engines.echo_faults import EchoFaults, Fate
from pipelines.engines.echo_step import Clock, EchoStep, SystemClock
from pipelines.engines.vllm_requests import Limits, refusal, refused
from schemas.errors import EngineDiedError
from schemas.requests import Answer, EngineFacts, EngineRequest, Poll, StepStats

VERSION = "2"

_UNKNOWN_NUMBER = 10**9


def last_tokens(request: EngineRequest) -> tuple[int, ...]:
    """Return the prompt's last `max_tokens` tokens, or one of those allowed, by the prompt."""
    sampling, prompt = request.sampling, request.prompt_token_ids
    if sampling.allowed_token_ids:
        return (sampling.allowed_token_ids[sum(prompt) % len(sampling.allowed_token_ids)],)
    return prompt[-sampling.max_tokens :]


class EchoEngine(ClosedByBlock):
    """Answers each request with what `answer` says, first come first served.

    Steps of up to `max_num_seqs` requests, prompt and output in one; at `tokens_per_s` each
    takes its tokens' time, 0 is as fast as Python goes and makes one step a poll. Where
    log-probabilities are asked for they favour the answer two to one, and add up to 1.
    """

    def __init__(
        self,
        *,
        max_model_len: int = 8192,
        max_num_seqs: int = 1024,
        tokens_per_s: float = 0.0,
        stall_timeout_s: float = 3.0,
        faults: EchoFaults | None = None,
        answer: Callable[[EngineRequest], tuple[int, ...]] = last_tokens,
        clock: Clock | None = None,
    ) -> None:
        """Be ready at once."""
        self._faults = faults or EchoFaults()
        self._tokens_per_s = tokens_per_s
        self._stall_timeout_s = stall_timeout_s
        self._max_num_seqs = max_num_seqs
        self._answer = answer
        self._clock = clock or SystemClock()
        self._limits = Limits(max_model_len=max_model_len)
        self._waiting: deque[EngineRequest] = deque()
        self._step: EchoStep | None = None
        self._num_taken = 0
        self._num_lost = 0
        self._fate: Fate = "lives"
        self._progress_at = self._clock.now()
        self._opened_at = time.monotonic()
        self._death: EngineDiedError | None = None
        self._facts = EngineFacts(
            engine="echo",
            engine_version=VERSION,
            device_name="none",
            num_devices=1,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            kv_capacity_tokens=None,
            load_s=0.0,
            memory_bytes=None,
            settings={"tokens_per_s": str(tokens_per_s)},
        )

    @property
    def facts(self) -> EngineFacts:
        """What the engine is. See `Engine.facts`."""
        if self._faults.dies_at_start:
            self._die("at its start, as it was told to")
        return self._facts

    @property
    def held_since_s(self) -> float:
        """When the engine was made. See `Engine.held_since_s`."""
        return self._opened_at

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests. See `Engine.submit`."""
        self._check_alive()
        if not self._waiting and self._step is None and not self._num_lost:
            self._progress_at = self._clock.now()
        self._waiting.extend(requests)

    def poll(self, timeout_s: float) -> Poll:
        """Return what is finished, or finishes first within `timeout_s`. See `Engine.poll`."""
        self._check_alive()
        deadline = self._clock.now() + timeout_s
        answers: list[Answer] = []
        steps: list[StepStats] = []
        while (step := self._begun()) is not None:
            if step.ends_s > (self._clock.now() if steps else deadline):
                break
            self._sleep_until(step.ends_s)
            answers += step.answers
            steps.append(step.stats(len(self._waiting)))
            self._progress_at = step.ends_s
            self._step = None
            if not self._tokens_per_s:
                break
        if not steps:
            self._pass_time(deadline)
        return Poll(answers=tuple(answers), steps=tuple(steps))

    def reset(self) -> None:
        """Drop what is not answered. See `Engine.reset`."""
        self._waiting.clear()
        self._step = None
        self._num_lost = 0
        self._fate = "lives"

    def close(self) -> None:
        """Drop what is not answered; there is nothing else to end."""
        self.reset()

    def _check_alive(self) -> None:
        if self._death is not None:
            raise self._death

    def _die(self, how: str, *, is_stall: bool = False) -> None:
        self._death = EngineDiedError(f"the echo engine died {how}", is_stall=is_stall)
        raise self._death

    def _begun(self) -> EchoStep | None:
        """Return the step under way, begun now if there was none; None if there is none to make."""
        if self._step is not None or not self._waiting:
            return self._step
        step = EchoStep(starts_s=self._progress_at if self._tokens_per_s else self._clock.now())
        while self._waiting and step.num_running < self._max_num_seqs:
            self._fate = self._faults.fate(self._waiting[0], self._num_taken + 1)
            if self._fate != "lives":
                break
            self._num_taken += 1
            self._take(self._waiting.popleft(), step)
        duration_s = step.num_tokens / self._tokens_per_s if self._tokens_per_s else 0.0
        step.ends_s = step.starts_s + duration_s
        self._step = step if step.num_running else None
        return self._step

    def _take(self, request: EngineRequest, step: EchoStep) -> None:
        answer = self._answered(request)
        step.count(request, len(answer.token_ids))
        if self._num_taken == self._faults.drops_at:
            self._num_lost += 1
        elif self._num_taken == self._faults.answers_unknown_at:
            step.answers.append(Answer(number=_UNKNOWN_NUMBER, token_ids=(), finish_reason="stop"))
        else:
            is_twice = self._num_taken == self._faults.answers_twice_at
            step.answers += [answer] * (2 if is_twice else 1)

    def _answered(self, request: EngineRequest) -> Answer:
        error = refusal(request, self._limits)
        if error is not None:
            return refused(request.number, error)
        token_ids = self._answer(request)
        return Answer(
            number=request.number,
            token_ids=token_ids,
            finish_reason="length" if len(token_ids) == request.sampling.max_tokens else "stop",
            num_cached_tokens=0,
            logprobs=_logprobs(request.sampling.logprob_token_ids, token_ids),
            queue_s=0.0,
            ttft_s=0.0,
            tpot_s=None if len(token_ids) < 2 else 0.0,
        )

    def _pass_time(self, deadline: float) -> None:
        """Let the time of an empty poll pass; die where a fault says so."""
        if self._step is not None:
            self._sleep_until(deadline)
        elif self._fate == "dies":
            self._die("as it was told to")
        elif self._fate == "hangs" or self._num_lost:
            stalls_at = self._progress_at + self._stall_timeout_s
            self._sleep_until(min(stalls_at, deadline))
            if stalls_at <= deadline:
                self._die("of a stall, as it was told to", is_stall=True)

    def _sleep_until(self, instant: float) -> None:
        left_s = instant - self._clock.now()
        if left_s > 0:
            self._clock.sleep(left_s)


def _logprobs(asked: tuple[int, ...], chosen: tuple[int, ...]) -> tuple[float, ...]:
    weights = [2 if chosen[:1] == (token,) else 1 for token in asked]
    return tuple(math.log(weight / sum(weights)) for weight in weights)
