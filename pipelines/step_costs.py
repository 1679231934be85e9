"""Step costs: what an engine step takes for each thing in it, fitted to the steps of earlier runs.

    seconds of a step = a + b x forward tokens + c x sampled tokens + d x query-key pairs

by least squares with no cost below zero. A run of many prompts and short answers and one of
short prompts and long answers are then told by the same four numbers.

Source: non-negative least squares by trying every set of features that may be zero (15 of
them); Lawson and Hanson 1974 for why the best set's plain solution is the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from schemas.requests import StepStats
from schemas.step_sums import FEATURES, StepSums

PLAIN_COSTS = (0.0, 1.0, 1.0, 0.0)
"""Where no step was added up: every token costs the same."""
MIN_STEPS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of one batch: how many, and their tokens together."""

    num_requests: int
    num_prompt_tokens: float
    num_cached_tokens: float
    num_output_tokens: float


@dataclass(slots=True)
class StepAdder:
    """Adds up the steps of an attempt."""

    _sums: np.ndarray | None = None

    def add(self, step: StepStats) -> None:
        """Add a step that had work."""
        row = np.array(
            [
                1.0,
                sum(work.num_forward_tokens for work in step.work),
                sum(work.num_decode_tokens for work in step.work),
                sum(work.num_query_key_pairs for work in step.work),
                step.duration_s,
            ]
        )
        product = np.outer(row, row)
        self._sums = product if self._sums is None else self._sums + product

    def sums(self) -> StepSums:
        """Return the sums so far."""
        if self._sums is None:
            return StepSums()
        return StepSums(products=tuple(float(one) for one in self._sums.reshape(-1)))


def step_costs(sums: StepSums) -> tuple[float, ...]:
    """Return the seconds that one of each of `FEATURES` costs; none is below zero.

    `PLAIN_COSTS`, whose unit is no seconds, for fewer than `MIN_STEPS` steps.
    """
    size = len(FEATURES)
    if sums.num_steps < MIN_STEPS:
        return PLAIN_COSTS
    matrix = np.array([sums.row(place) for place in range(size + 1)])
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale)
    best, best_error = PLAIN_COSTS, np.inf
    for count in range(1, size + 1):
        for chosen in map(list, combinations(range(size), count)):
            inner = scaled[np.ix_(chosen, chosen)] + 1e-9 * np.eye(count)
            found = np.linalg.solve(inner, scaled[chosen, size])
            error = 1.0 - float(found @ scaled[chosen, size])
            if (found >= 0).all() and error < best_error:
                costs = np.zeros(size)
                costs[chosen] = found * scale[size] / scale[chosen]
                best, best_error = tuple(float(one) for one in costs), error
    return best


def cost(batches: Sequence[Requests], costs: Sequence[float], sampled_per_step: float) -> float:
    """Return what these batches cost: seconds of steps, or only comparable under `PLAIN_COSTS`.

    The requests of a batch are taken for equally long. Steps: as many as put out all tokens at
    `sampled_per_step` (0: not counted), and no fewer than the longest answers take.
    """
    asked = [one for one in batches if one.num_requests]
    features = np.zeros(len(FEATURES))
    for one in asked:
        features += _features(one)
    longest = max((one.num_output_tokens / one.num_requests for one in asked), default=0.0)
    if sampled_per_step > 0:
        features[0] = max(features[2] / sampled_per_step, longest)
    return float(features @ np.array(costs))


def _features(batch: Requests) -> np.ndarray:
    prompt = batch.num_prompt_tokens / batch.num_requests
    cached = min(prompt, batch.num_cached_tokens / batch.num_requests)
    output = batch.num_output_tokens / batch.num_requests
    new, fed_back = prompt - cached, max(0.0, output - 1)
    pairs = new * cached + new * (new + 1) / 2 + fed_back * (prompt + output / 2)
    return np.array([0.0, new + fed_back, output, pairs]) * batch.num_requests
