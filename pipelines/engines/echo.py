"""An engine without a model: it answers with the end of the prompt, at any speed, with any fault.

For tests of the data plane and for trying a job file. Its answers mean nothing.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from schemas.errors import EngineDiedError
from schemas.requests import Answer, EngineFacts, EngineRequest, Poll, StepStats, StepWork

VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoFaults:
    """What goes wrong, by the order in which requests come or by what is in a prompt.

    Numbers count requests from 1 within one engine. `poison` is a run of tokens: a prompt
    that holds it kills the engine when it is its turn; `hang` makes it stall there instead.
    """

    dies_at: int | None = None
    poison: tuple[int, ...] = ()
    hang: tuple[int, ...] = ()
    answers_twice_at: int | None = None
    answers_unknown_at: int | None = None
    drops_at: int | None = None
    dies_at_start: bool = False


@dataclass(slots=True)
class _Counts:
    """Requests answered so far, in this engine."""

    num_answered: int = 0
    is_stalled: bool = False
    is_dead: bool = False
    waiting: deque[EngineRequest] = field(default_factory=deque)


class EchoEngine:
    """Answers each request with its prompt's last `max_tokens` tokens, first come first served.

    Of `allowed_token_ids` it takes the one that the prompt's tokens choose, and gives
    log-probabilities that add up to 1. `tokens_per_s` 0 is as fast as Python goes; otherwise
    each step of up to `max_num_seqs` requests takes its tokens' time.
    """

    def __init__(
        self,
        *,
        max_model_len: int = 8192,
        max_num_seqs: int = 1024,
        tokens_per_s: float = 0.0,
        stall_timeout_s: float = 3.0,
        faults: EchoFaults | None = None,
    ) -> None:
        """Be ready at once."""
        self._faults = faults or EchoFaults()
        self._tokens_per_s = tokens_per_s
        self._stall_timeout_s = stall_timeout_s
        self._max_num_seqs = max_num_seqs
        self._counts = _Counts()
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
        """What the engine is."""
        if self._faults.dies_at_start:
            raise EngineDiedError("the echo engine died at its start, as it was told to")
        return self._facts

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests."""
        self._check_alive()
        self._counts.waiting.extend(requests)

    def poll(self, timeout_s: float) -> Poll:
        """Make one step over the requests that wait, and return it with their answers."""
        self._check_alive()
        if self._counts.is_stalled:
            time.sleep(min(timeout_s, self._stall_timeout_s))
            self._counts.is_dead = True
            raise EngineDiedError("the echo engine stalls, as it was told to", is_stall=True)
        started_s = time.monotonic()
        taken, answers = self._step()
        if not taken:
            return Poll(answers=(), steps=())
        num_tokens = sum(len(r.prompt_token_ids) + r.sampling.max_tokens for r in taken)
        if self._tokens_per_s:
            time.sleep(num_tokens / self._tokens_per_s)
        step = StepStats(
            started_s=started_s,
            duration_s=time.monotonic() - started_s,
            num_running=len(taken),
            num_waiting=len(self._counts.waiting),
            kv_usage_fraction=0.0,
            num_preemptions=0,
            work=_work(taken, answers),
        )
        return Poll(answers=tuple(answers), steps=(step,))

    def reset(self) -> None:
        """Drop what waits."""
        self._counts.waiting.clear()

    def close(self) -> None:
        """Drop what waits; there is nothing else to end."""
        self._counts.waiting.clear()

    def __enter__(self) -> Self:
        """Return the engine."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the engine."""
        self.close()

    def _check_alive(self) -> None:
        if self._counts.is_dead:
            raise EngineDiedError("the echo engine is dead")

    def _step(self) -> tuple[list[EngineRequest], list[Answer]]:
        """Take requests off the queue until the step is full, or a fault ends it."""
        taken: list[EngineRequest] = []
        answers: list[Answer] = []
        while self._counts.waiting and len(taken) < self._max_num_seqs:
            request = self._counts.waiting[0]
            number = self._counts.num_answered + 1
            if number == self._faults.dies_at or _holds(request, self._faults.poison):
                if answers:
                    break
                self._counts.is_dead = True
                raise EngineDiedError("the echo engine died, as it was told to")
            if _holds(request, self._faults.hang):
                self._counts.is_stalled = True
                break
            self._counts.waiting.popleft()
            self._counts.num_answered = number
            taken.append(request)
            answers += self._answers(request, number)
        return taken, answers

    def _answers(self, request: EngineRequest, number: int) -> Iterable[Answer]:
        answer = _answer(request)
        if number == self._faults.drops_at:
            self._counts.is_stalled = True
            return ()
        if number == self._faults.answers_unknown_at:
            return (_answer(request, number=10**9),)
        if number == self._faults.answers_twice_at:
            return (answer, answer)
        return (answer,)


def _holds(request: EngineRequest, marker: tuple[int, ...]) -> bool:
    tokens, size = request.prompt_token_ids, len(marker)
    return size > 0 and any(
        tokens[start : start + size] == marker for start in range(len(tokens) - size + 1)
    )


def _answer(request: EngineRequest, number: int | None = None) -> Answer:
    sampling, prompt = request.sampling, request.prompt_token_ids
    token_ids = prompt[-sampling.max_tokens :]
    if sampling.allowed_token_ids:
        allowed = sampling.allowed_token_ids
        token_ids = (allowed[sum(prompt) % len(allowed)],)
    return Answer(
        number=request.number if number is None else number,
        token_ids=token_ids,
        finish_reason="length" if len(token_ids) == sampling.max_tokens else "stop",
        num_cached_tokens=0,
        logprobs=_logprobs(sampling.logprob_token_ids, token_ids),
        queue_s=0.0,
        ttft_s=0.0,
        tpot_s=None if len(token_ids) < 2 else 0.0,
    )


def _logprobs(asked: tuple[int, ...], chosen: tuple[int, ...]) -> tuple[float, ...]:
    """Return log-probabilities that favour the chosen token two to one over any other."""
    total = len(asked) + 1
    return tuple(math.log((2 if token == chosen[0] else 1) / total) for token in asked)


def _work(taken: Sequence[EngineRequest], answers: Sequence[Answer]) -> tuple[StepWork, ...]:
    prefill: dict[int, int] = {}
    decode: dict[int, int] = {}
    group_of = {request.number: request.group for request in taken}
    for request in taken:
        prefill[request.group] = prefill.get(request.group, 0) + len(request.prompt_token_ids)
    for answer in answers:
        group = group_of.get(answer.number)
        if group is not None:
            decode[group] = decode.get(group, 0) + len(answer.token_ids)
    return tuple(
        StepWork(
            group=group,
            num_prefill_tokens=tokens,
            num_decode_tokens=decode.get(group, 0),
            num_context_tokens=0,
        )
        for group, tokens in prefill.items()
    )
