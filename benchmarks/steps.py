"""What engine steps say about feeding: how many there were and had to be, idle, and the tail."""

from collections.abc import Sequence
from math import ceil

from schemas.requests import StepStats

TAIL_SHARE = 0.5
"""The tail begins after the last step in which at least this share of the mean was running."""


def min_steps(
    output_lengths: Sequence[int],
    num_prefill_tokens: int,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """Return a number of engine steps below which nothing could answer this.

    The most of three: the longest answer, because a sequence makes one token a step; the
    answers over the sequences that run at once; and all tokens over those that a step holds,
    of which an answer's last one is never put in. Prefill and decode share steps, so prefill
    adds none of its own as long as there is room.
    """
    if not output_lengths:
        return 0
    num_tokens = num_prefill_tokens + sum(output_lengths) - len(output_lengths)
    return max(
        *output_lengths,
        ceil(sum(output_lengths) / max_num_seqs),
        ceil(num_tokens / max_num_batched_tokens),
    )


def tail_fraction(steps: Sequence[StepStats]) -> float:
    """Return the share of all steps' seconds that the tail took, 0 to 1.

    The steady mean is that of the sequences running while others waited, weighted by time,
    or of all steps where nobody ever waited. What comes after the last step in which half of
    it was running is the tail.
    """
    total_s = sum(step.duration_s for step in steps)
    steady = [step for step in steps if step.num_waiting] or list(steps)
    steady_s = sum(step.duration_s for step in steady)
    if not steady_s:
        return 0.0
    mean = sum(step.num_running * step.duration_s for step in steady) / steady_s
    tail_s = 0.0
    for step in reversed(steps):
        if step.num_running >= TAIL_SHARE * mean:
            break
        tail_s += step.duration_s
    return tail_s / total_s
