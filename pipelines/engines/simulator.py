"""An engine that schedules as vLLM does and computes nothing: how many steps would it take?

Continuous batching with chunked prefill under a budget of tokens, first come first served,
with a KV cache of blocks and preemption of the last come. Deterministic: for measuring orders
and windows, where real engines need minutes and clocks are noisy.

Left out: prefix caching, and requests that end in other ways than `length_of` says.

Source: vLLM 0.32, v1/core/sched/scheduler.py (`schedule`): running sequences first, in order;
a sequence that finds no block preempts the last one; then waiting ones, while there are
sequences, tokens and blocks for their whole prompt (`scheduler_reserve_full_isl`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.engines.closing import ClosedByBlock
from schemas.requests import Answer, EngineFacts, EngineRequest, Poll, StepStats, StepWork


@dataclass(slots=True)
class _Sequence:
    """A request in the simulated engine: tokens to come, and those in the KV cache."""

    request: EngineRequest
    num_outputs: int
    num_prompt: int
    num_computed: int = 0
    num_sampled: int = 0
    num_blocks: int = 0

    @property
    def num_missing(self) -> int:
        """Tokens that must go through the layers until the next one is sampled."""
        return self.num_prompt + self.num_sampled - self.num_computed


class SimulatedEngine(ClosedByBlock):
    """Answers with zeros, as many as `length_of` says (`max_tokens` by default)."""

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        kv_capacity_tokens: int = 2**40,
        block_size: int = 32,
        length_of: Callable[[EngineRequest], int] = lambda request: request.sampling.max_tokens,
        step_s: Callable[[Sequence[StepWork]], float] = lambda _work: 1.0,
    ) -> None:
        """Be ready at once; `step_s` returns the seconds that a step of this work takes."""
        self._max_num_batched_tokens = max_num_batched_tokens
        self._block_size = block_size
        self._free_blocks = self._num_blocks = kv_capacity_tokens // block_size
        self._length_of = length_of
        self._step_s = step_s
        self._now_s = 0.0
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._num_preemptions = 0
        self._facts = EngineFacts(
            engine="simulator",
            engine_version="1",
            device_name="none",
            num_devices=1,
            max_model_len=2**20,
            max_num_seqs=max_num_seqs,
            kv_capacity_tokens=kv_capacity_tokens,
            load_s=0.0,
            memory_bytes=None,
            settings={"block_size": str(block_size)},
        )

    @property
    def facts(self) -> EngineFacts:
        """What the engine is. See `Engine.facts`."""
        return self._facts

    @property
    def held_since_s(self) -> float:
        """Its own clock's beginning. See `Engine.held_since_s`."""
        return 0.0

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests. See `Engine.submit`."""
        self._waiting.extend(
            _Sequence(
                request=request,
                num_outputs=self._length_of(request),
                num_prompt=len(request.prompt_token_ids),
            )
            for request in requests
        )

    def poll(self, timeout_s: float) -> Poll:
        """Make one step. See `Engine.poll`."""
        del timeout_s
        scheduled = self._schedule()
        if not scheduled:
            return Poll(answers=(), steps=())
        work = tuple(
            _work(sequence, num_tokens, is_sampled=num_tokens == sequence.num_missing)
            for sequence, num_tokens in scheduled
        )
        step = StepStats(
            started_s=self._now_s,
            duration_s=self._step_s(work),
            num_running=len(scheduled),
            num_waiting=len(self._waiting),
            kv_usage_fraction=1.0 - self._free_blocks / self._num_blocks,
            num_preemptions=self._num_preemptions,
            work=work,
        )
        self._now_s += step.duration_s
        self._num_preemptions = 0
        return Poll(answers=tuple(self._computed(scheduled)), steps=(step,))

    def reset(self) -> None:
        """Drop what is not answered. See `Engine.reset`."""
        self._waiting.clear()
        self._running.clear()
        self._free_blocks = self._num_blocks

    def close(self) -> None:
        """Drop what is not answered; there is nothing else to end."""
        self.reset()

    def _schedule(self) -> list[tuple[_Sequence, int]]:
        """Return the sequences of the next step and their tokens, blocks being taken."""
        budget = self._max_num_batched_tokens
        scheduled: list[tuple[_Sequence, int]] = []
        for sequence in list(self._running):
            if sequence not in self._running or not budget:
                continue
            num_tokens = min(sequence.num_missing, budget)
            if self._makes_room(sequence, sequence.num_computed + num_tokens):
                scheduled.append((sequence, num_tokens))
                budget -= num_tokens
        while self._waiting and budget and len(self._running) < self._facts.max_num_seqs:
            sequence = self._waiting[0]
            if self._blocks(sequence, sequence.num_missing) > self._free_blocks:
                break
            self._running.append(self._waiting.popleft())
            num_tokens = min(sequence.num_missing, budget)
            self._take_blocks(sequence, num_tokens)
            scheduled.append((sequence, num_tokens))
            budget -= num_tokens
        return [pair for pair in scheduled if pair[0] in self._running]

    def _makes_room(self, sequence: _Sequence, num_tokens: int) -> bool:
        """Take the blocks for so many tokens; the last come lose theirs where there are none."""
        while self._blocks(sequence, num_tokens) > self._free_blocks:
            victim = self._running.pop()
            self._free_blocks += victim.num_blocks
            victim.num_blocks = victim.num_computed = 0
            self._waiting.appendleft(victim)
            self._num_preemptions += 1
            if victim is sequence:
                return False
        self._take_blocks(sequence, num_tokens)
        return True

    def _blocks(self, sequence: _Sequence, num_tokens: int) -> int:
        """Return how many blocks more a sequence needs to hold so many tokens."""
        return max(0, -(-num_tokens // self._block_size) - sequence.num_blocks)

    def _take_blocks(self, sequence: _Sequence, num_tokens: int) -> None:
        num_blocks = self._blocks(sequence, num_tokens)
        sequence.num_blocks += num_blocks
        self._free_blocks -= num_blocks

    def _computed(self, scheduled: Sequence[tuple[_Sequence, int]]) -> list[Answer]:
        answers: list[Answer] = []
        for sequence, num_tokens in scheduled:
            sequence.num_sampled += num_tokens == sequence.num_missing
            sequence.num_computed += num_tokens
            if sequence.num_sampled == sequence.num_outputs:
                self._running.remove(sequence)
                self._free_blocks += sequence.num_blocks
                answers.append(
                    Answer(
                        number=sequence.request.number,
                        token_ids=(0,) * sequence.num_outputs,
                        finish_reason="length",
                        num_cached_tokens=0,
                    )
                )
        return answers


def _work(sequence: _Sequence, num_tokens: int, *, is_sampled: bool) -> StepWork:
    context = sequence.num_computed
    is_prefill = context < sequence.num_prompt
    return StepWork(
        group=sequence.request.group,
        num_prefill_tokens=num_tokens if is_prefill else 0,
        num_decode_tokens=int(is_sampled),
        num_context_tokens=context,
        num_forward_tokens=num_tokens,
        num_query_key_pairs=num_tokens * context + num_tokens * (num_tokens + 1) // 2,
    )
