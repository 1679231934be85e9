"""An engine's steps by simulation, at costs that are known: for tests of what is fitted to them."""

from collections import deque
from collections.abc import Sequence

from schemas.requests import StepStats, StepWork

COSTS = (0.03, 4e-4, 1e-3, 2e-8)
"""Seconds of a step, and of each forward token, sampled token and query-key pair."""


def steps_of(requests: Sequence[tuple[int, int]], *, max_num_seqs: int = 32) -> list[StepStats]:
    """Return the steps that answer requests of (prompt, output) tokens, as they come.

    A free place is taken in the next step; a prompt is computed in one.
    """
    waiting, running = deque(requests), list[list[int]]()
    steps: list[StepStats] = []
    while waiting or running:
        forward = pairs = 0
        for sequence in running:
            forward, pairs = forward + 1, pairs + sequence[0]
            sequence[0] += 1
            sequence[1] -= 1
        while waiting and len(running) < max_num_seqs:
            prompt, output = waiting.popleft()
            forward, pairs = forward + prompt, pairs + prompt * (prompt + 1) // 2
            running.append([prompt + 1, output - 1])
        sampled = len(running)
        features = (1, forward, sampled, pairs)
        seconds = sum(cost * value for cost, value in zip(COSTS, features, strict=True))
        steps.append(_step(seconds, sampled, forward, pairs))
        running = [one for one in running if one[1] > 0]
    return steps


def _step(seconds: float, sampled: int, forward: int, pairs: int) -> StepStats:
    work = StepWork(
        group=0,
        num_prefill_tokens=forward,
        num_decode_tokens=sampled,
        num_context_tokens=0,
        num_forward_tokens=forward,
        num_query_key_pairs=pairs,
    )
    return StepStats(
        started_s=0.0,
        duration_s=seconds,
        num_running=sampled,
        num_waiting=0,
        kv_usage_fraction=0.0,
        num_preemptions=0,
        work=(work,),
    )
