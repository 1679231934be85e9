"""Savings: what a batch would have cost more, had nothing been shared or cached."""

from collections.abc import Iterable

from pipelines.meter import Use
from pipelines.roofline import compute_s
from schemas.model_shape import Roofline
from schemas.requests import StepWork


def shared_work(
    *, prefixes: Iterable[int] = (), outputs: Iterable[tuple[int, int]] = ()
) -> StepWork:
    """Return the work that was not done, as if it had been done in one step.

    `prefixes` are lengths of cached beginnings of prompts; `outputs` (prompt, output tokens)
    of answers that were taken over, without the computing of their prompts.
    """
    num_prefill = num_decode = num_pairs = 0
    for length in prefixes:
        num_prefill += length
        num_pairs += length * (length + 1) // 2
    for num_prompt, num_output in outputs:
        num_decode += num_output
        num_pairs += num_output * num_prompt + num_output * (num_output + 1) // 2
    return StepWork(
        group=0,
        num_prefill_tokens=num_prefill,
        num_decode_tokens=num_decode,
        num_context_tokens=0,
        num_forward_tokens=num_prefill + num_decode,
        num_query_key_pairs=num_pairs,
    )


def saved_usd(
    saved: StepWork, use: Use, roofline: Roofline | None, usd_per_device_hour: float
) -> float | None:
    """Return the price of this work at the rate at which the batch's own work was done.

    saved USD = USD of the batch x (saved work / work done), both by their arithmetic at the
    device's limit, or by tokens where no roofline is known. An estimate: work in other
    company takes another time. None where the batch did no work to compare with.
    """
    done = StepWork(
        group=0,
        num_prefill_tokens=use.num_prefill_tokens,
        num_decode_tokens=use.num_decode_tokens,
        num_context_tokens=0,
        num_forward_tokens=use.num_forward_tokens,
        num_query_key_pairs=use.num_query_key_pairs,
    )
    whole = _weight(done, roofline)
    if whole <= 0:
        return None
    return use.device_s / 3600 * usd_per_device_hour * _weight(saved, roofline) / whole


def _weight(work: StepWork, roofline: Roofline | None) -> float:
    if roofline is None:
        return float(work.num_prefill_tokens + work.num_decode_tokens)
    return compute_s(work, roofline)
