"""How many output tokens a request will take, by the answers to prompts of about its length."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from schemas.output_lengths import OutputLengths, output_span, prompt_bucket
from schemas.plans import Plan

MIN_REQUESTS = 32
"""Answers that a prediction stands on; a bucket with fewer borrows its neighbours'."""
HIGH_QUANTILE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Output tokens of requests of one prompt length: the mean, and two quantiles.

    Quantiles are the longest lengths of their buckets, so they are never too low by a bucket.
    """

    mean: float
    p90: int
    high: int


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What answers so far say about the next ones; `lengths` without counts say nothing.

    `basis` says in words where they come from. `is_fixed`: every answer takes what it may.
    """

    basis: str
    lengths: OutputLengths
    is_fixed: bool = False

    @property
    def is_known(self) -> bool:
        """Whether there are answers to go by."""
        return bool(self.lengths.counts)

    def expected(self, num_prompt_tokens: int, *, max_output_tokens: int) -> Expected:
        """Return what to expect of a prompt of so many tokens; without answers the maximum."""
        most = max_output_tokens
        found = self._by_bucket.get(self._nearest(prompt_bucket(num_prompt_tokens)))
        if found is None:
            return Expected(mean=most, p90=most, high=most)
        return Expected(
            mean=min(found.mean, most), p90=min(found.p90, most), high=min(found.high, most)
        )

    def _nearest(self, bucket: int) -> int:
        if not self._by_bucket:
            return bucket
        return min(max(bucket, min(self._by_bucket)), max(self._by_bucket))

    @cached_property
    def _by_bucket(self) -> dict[int, Expected]:
        """What to expect of every prompt bucket between the shortest and the longest seen."""
        outputs: dict[int, Counter[int]] = {}
        for (prompt, output), num_requests in self.lengths.counts.items():
            outputs.setdefault(prompt, Counter())[output] += num_requests
        if not outputs:
            return {}
        first, last = min(outputs), max(outputs)
        return {
            bucket: _expected(_around(bucket, outputs, width=last - first))
            for bucket in range(first, last + 1)
        }


class Learning:
    """A prediction that this attempt's own answers are added to as they come."""

    def __init__(self, prediction: Prediction) -> None:
        """Begin with what is known already."""
        self._prediction = prediction
        self._num_known = prediction.lengths.num_requests
        self._new: list[tuple[int, int]] = []

    def learn(self, num_prompt_tokens: int, num_output_tokens: int, *, num_unanswered: int) -> None:
        """Add an answer.

        Answers that come first are the short ones: nothing is made of them until four have come
        for each request that is still in the engine. After that every time they are half as
        many again, so that learning costs next to nothing.
        """
        if self._prediction.is_fixed:
            return
        self._new.append((num_prompt_tokens, num_output_tokens))
        if len(self._new) < max(MIN_REQUESTS, 4 * num_unanswered, self._num_known // 2):
            return
        lengths = OutputLengths.sum([self._prediction.lengths, OutputLengths.of(self._new)])
        self._prediction = Prediction(basis=self._prediction.basis, lengths=lengths)
        self._num_known = lengths.num_requests
        self._new = []

    def high(self, num_prompt_tokens: int, max_output_tokens: int) -> int:
        """Return output tokens that hardly any answer passes; what is possible if not known."""
        if self._num_known < MIN_REQUESTS:
            return max_output_tokens
        expected = self._prediction.expected(num_prompt_tokens, max_output_tokens=max_output_tokens)
        return expected.high


def prediction_of(plan: Plan) -> Prediction:
    """Return what the plan predicted from.

    Raises:
        VerificationError: the plan's counts are no such.
    """
    return Prediction(
        basis=plan.prediction_basis, lengths=OutputLengths.from_text(plan.output_lengths)
    )


def fixed_lengths(basis: str) -> Prediction:
    """Return the prediction of answers that all take what they may, by this reason."""
    return Prediction(basis=basis, lengths=OutputLengths(), is_fixed=True)


def _around(bucket: int, outputs: Mapping[int, Counter[int]], *, width: int) -> Counter[int]:
    """Return the outputs of this bucket, and of ever more neighbours until they are enough."""
    found = Counter(outputs.get(bucket, {}))
    for distance in range(1, width + 1):
        if found.total() >= MIN_REQUESTS:
            break
        found.update(outputs.get(bucket - distance, {}))
        found.update(outputs.get(bucket + distance, {}))
    return found


def _expected(outputs: Counter[int]) -> Expected:
    total = sum(sum(output_span(bucket)) / 2 * n for bucket, n in outputs.items())
    return Expected(
        mean=total / outputs.total(),
        p90=_quantile(outputs, 0.9),
        high=_quantile(outputs, HIGH_QUANTILE),
    )


def _quantile(outputs: Counter[int], share: float) -> int:
    """Return the longest length of the bucket in which this share of the requests is reached."""
    wanted, seen = share * outputs.total(), 0
    for bucket in sorted(outputs):
        seen += outputs[bucket]
        if seen >= wanted:
            return output_span(bucket)[1]
    return output_span(max(outputs))[1]
