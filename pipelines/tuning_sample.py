"""The sample that settings are tuned with: requests from all over a plan, all work fixed.

Outputs have the lengths that the plan predicts, whatever the model would say: trials with
other settings, whose answers differ in the last bits, then do the same work.
"""

from collections.abc import Iterator
from dataclasses import replace

from pipelines.asking import Asking
from pipelines.feed import Feed
from pipelines.plan_parts import BatchRows, read_batches
from pipelines.prediction import fixed_lengths
from pipelines.storage import Store
from pipelines.window import Window
from schemas.errors import SettingsError
from schemas.plans import Plan
from schemas.requests import EngineRequest, SamplingSettings

MAX_REQUESTS = 512


def sample_of(
    store: Store, plan: Plan, asking: Asking, sampling: SamplingSettings
) -> tuple[EngineRequest, ...]:
    """Return requests from all over the plan, in its order, with outputs of fixed lengths.

    Raises:
        SettingsError: the plan holds no request.
    """
    every = max(1, -(-plan.num_requests * max(1, asking.num_asks) // MAX_REQUESTS))
    predicted: list[int] = []
    batches = _thinned(store, plan, every, predicted)
    feed = Feed(batches, asking, sampling, fixed_lengths("the plan's own predictions"))
    requests: list[EngineRequest] = []
    window = Window(num_requests=MAX_REQUESTS * 2, num_tokens=None)
    while feed.has_requests() and (entering := feed.next_requests(window)):
        requests += entering
    if not requests:
        raise SettingsError("the plan holds no request: there is nothing to tune with")
    num_asks = max(1, asking.num_asks)
    lengths = [one // num_asks for one in predicted for _ in range(num_asks)]
    return tuple(
        replace(one, sampling=_fixed(one.sampling, length))
        for one, length in zip(requests, lengths, strict=False)
    )


def _thinned(store: Store, plan: Plan, every: int, predicted: list[int]) -> Iterator[BatchRows]:
    """Yield the batches with each `every`-th request alone, and collect their lengths."""
    asking = [batch for batch in plan.batches if batch.num_requests]
    place = 0
    for cut in read_batches(store, plan, asking):
        chosen = [i for i in range(cut.batch.num_requests) if (place + i) % every == 0]
        place += cut.batch.num_requests
        if chosen:
            rows = cut.rows.take(chosen)
            predicted += rows["predicted_output_tokens"].to_pylist()
            yield BatchRows(
                batch=replace(
                    cut.batch,
                    num_rows=len(chosen),
                    num_requests=len(chosen),
                    num_shared=0,
                    num_rejects=0,
                ),
                rows=rows,
            )


def _fixed(sampling: SamplingSettings, num_tokens: int) -> SamplingSettings:
    """Return settings with which an answer has so many tokens, at most those allowed."""
    if sampling.allowed_token_ids:
        return sampling
    return replace(
        sampling,
        max_tokens=max(1, min(num_tokens, sampling.max_tokens)),
        min_tokens=0,
        ignore_eos=True,
        stop=(),
        json_schema=None,
    )
