"""Workload: what the pending requests of a plan ask of an engine, as lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.plans import Plan, PlannedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that wait for an engine, in tokens per request.

    `mean_uncached_tokens` are prompt tokens without those of beginnings that an earlier request
    has. `heaviest_mean_tokens` is the mean prompt + output of the heaviest batch: what a full
    engine holds per request, since the longest are fed first. `longest_tokens` is the most that
    prompt and output of one request may come to, None where the plan does not say.
    """

    num_requests: int
    mean_prompt_tokens: float
    mean_uncached_tokens: float
    mean_output_tokens: float
    heaviest_mean_tokens: float
    longest_tokens: int | None

    @property
    def mean_tokens(self) -> float:
        """Prompt and output tokens of a request."""
        return self.mean_prompt_tokens + self.mean_output_tokens

    @property
    def num_computed_tokens(self) -> float:
        """Prompt tokens that are not cached, and output tokens, of all requests."""
        return self.num_requests * (self.mean_uncached_tokens + self.mean_output_tokens)


def workload_of(plan: Plan, pending: Sequence[PlannedBatch]) -> Workload | None:
    """Return what these batches of `plan` ask; None where they hold no request.

    The plan counts what prefixes share over all batches; pending ones have their part of it by
    prompt tokens.
    """
    asking = [batch for batch in pending if batch.num_requests]
    if not asking:
        return None
    num_requests = sum(batch.num_requests for batch in asking)
    num_prompt = sum(batch.num_prompt_tokens for batch in asking)
    all_prompt = sum(batch.num_prompt_tokens for batch in plan.batches)
    shared = plan.num_prefix_tokens / all_prompt if all_prompt else 0.0
    longest = [batch.longest_tokens for batch in asking]
    return Workload(
        num_requests=num_requests,
        mean_prompt_tokens=num_prompt / num_requests,
        mean_uncached_tokens=num_prompt * (1.0 - shared) / num_requests,
        mean_output_tokens=sum(one.predicted_output_tokens for one in asking) / num_requests,
        heaviest_mean_tokens=max(
            (one.num_prompt_tokens + one.predicted_output_tokens) / one.num_requests
            for one in asking
        ),
        longest_tokens=None if None in longest else max(filter(None, longest)),
    )
