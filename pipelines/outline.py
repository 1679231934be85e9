"""Outline: what a plan holds, counted from its rows, for whoever decides whether to run it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pipelines.plan_parts import read_batches
from pipelines.row_prompts import num_spared_tokens
from pipelines.storage import Store
from schemas.plans import Plan

_FIRST_BAR_TOKENS = 16
_MAX_NAMED = 5
_COLUMNS = ["num_prompt_tokens", "num_truncated_tokens", "prefix_group"]
_REJECT = ["row_key", "reject_code", "reject_message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """So many requests have `min_tokens` to `max_tokens` prompt tokens."""

    min_tokens: int
    max_tokens: int
    num_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a plan holds. Tokens are of requests, shared rows counted once.

    `too_long` are the key and the reason of the first rows that do not fit the context;
    `num_truncated` rows were cut to fit it. `num_prefix_tokens` prompt tokens, at least, lie in
    beginnings that an earlier request of one of `num_prefix_groups` has; `num_spared_tokens` of
    them because a row's `num_questions` questions begin alike. Each takes a prompt.
    """

    num_rows: int
    num_rejects: int
    rejects_by_code: dict[str, int]
    too_long: tuple[tuple[str, str], ...]
    num_truncated: int
    num_requests: int
    num_shared: int
    num_shared_tokens: int
    num_prefix_groups: int
    num_prefix_tokens: int
    num_questions: int
    num_spared_tokens: int
    num_batches: int
    num_prompt_tokens: int
    predicted_output_tokens: int
    median_prompt_tokens: int | None
    max_prompt_tokens: int | None
    histogram: tuple[Bar, ...]


def outline(store: Store, plan: Plan) -> Outline:
    """Return what the plan in `store` holds; reads its parts once.

    Raises:
        VerificationError: a part is absent or damaged.
    """
    frames = [pl.DataFrame(schema=dict.fromkeys(_COLUMNS, pl.Int32))]
    too_long: list[tuple[str, str]] = []
    num_spared = 0
    for cut in read_batches(store, plan, plan.batches):
        requests = cut.rows.slice(0, cut.batch.num_requests)
        frames.append(pl.DataFrame(requests.select(_COLUMNS)))
        num_spared += num_spared_tokens(requests)
        if cut.batch.num_rejects and len(too_long) < _MAX_NAMED:
            for row in cut.rows.select(_REJECT).to_pylist():
                if row["reject_code"] == "PROMPT_TOO_LONG":
                    too_long.append((row["row_key"], row["reject_message"]))
    requests = pl.concat(frames)
    tokens = requests["num_prompt_tokens"].sort().to_list()
    return Outline(
        num_rows=plan.num_rows,
        num_rejects=sum(plan.rejects_by_code.values()),
        rejects_by_code=plan.rejects_by_code,
        too_long=tuple(too_long[:_MAX_NAMED]),
        num_truncated=requests.filter(pl.col("num_truncated_tokens") > 0).height,
        num_requests=plan.num_requests,
        num_shared=sum(batch.num_shared for batch in plan.batches),
        num_shared_tokens=plan.num_shared_tokens,
        num_prefix_groups=requests.filter(pl.col("prefix_group") > 0)["prefix_group"].n_unique(),
        num_prefix_tokens=plan.num_prefix_tokens,
        num_questions=len(json.loads(plan.job).get("questions") or ()),
        num_spared_tokens=num_spared,
        num_batches=len(plan.batches),
        num_prompt_tokens=sum(batch.num_prompt_tokens for batch in plan.batches),
        predicted_output_tokens=sum(batch.predicted_output_tokens for batch in plan.batches),
        median_prompt_tokens=tokens[len(tokens) // 2] if tokens else None,
        max_prompt_tokens=tokens[-1] if tokens else None,
        histogram=_bars(tokens),
    )


def _bars(tokens: Sequence[int]) -> tuple[Bar, ...]:
    """Return bars that double in width, from the first to the last that holds a request."""
    bars: list[Bar] = []
    low, high, place = 1, _FIRST_BAR_TOKENS, 0
    while place < len(tokens):
        end = place
        while end < len(tokens) and tokens[end] <= high:
            end += 1
        if end > place or bars:
            bars.append(Bar(min_tokens=low, max_tokens=high, num_requests=end - place))
        low, high, place = high + 1, high * 2, end
    return tuple(bars)
