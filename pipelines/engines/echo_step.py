"""One step of an echo engine, and the clock it takes its time from."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from schemas.requests import Answer, EngineRequest, StepStats, StepWork


class Clock(Protocol):
    """What an echo engine takes time from; a test's clock need not wait."""

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return when `now` is this much later."""
        ...


class SystemClock:
    """Real time."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


@dataclass(slots=True)
class EchoStep:
    """A step that has begun: its answers, and what they cost, per group."""

    starts_s: float
    ends_s: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    num_running: int = 0
    num_tokens: int = 0
    work: dict[int, list[int]] = field(default_factory=dict)

    def count(self, request: EngineRequest, num_output_tokens: int) -> None:
        """Count a request's prompt and output as computed in this step."""
        num_prompt_tokens = len(request.prompt_token_ids)
        num_forward_tokens = num_prompt_tokens + max(0, num_output_tokens - 1)
        work = self.work.setdefault(request.group, [0, 0, 0, 0])
        work[0] += num_prompt_tokens
        work[1] += num_output_tokens
        work[2] += num_forward_tokens
        work[3] += num_forward_tokens * (num_forward_tokens + 1) // 2
        self.num_running += 1
        self.num_tokens += num_prompt_tokens + num_output_tokens

    def stats(self, num_waiting: int) -> StepStats:
        """Return what an engine reports of this step."""
        return StepStats(
            started_s=self.starts_s,
            duration_s=self.ends_s - self.starts_s,
            num_running=self.num_running,
            num_waiting=num_waiting,
            kv_usage_fraction=0.0,
            num_preemptions=0,
            work=tuple(
                StepWork(
                    group=group,
                    num_prefill_tokens=prefill,
                    num_decode_tokens=decode,
                    num_context_tokens=0,
                    num_forward_tokens=forward,
                    num_query_key_pairs=pairs,
                )
                for group, (prefill, decode, forward, pairs) in self.work.items()
            ),
        )
