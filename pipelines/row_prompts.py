"""The prompts of one row, when there are several: what they share is kept once.

Prompts of one row begin alike wherever the template puts the question behind the row's text.
Whole prompts are tokenized, and their tokens compared, so that tokens which reach across the
place where they part are right.
"""

from collections.abc import Sequence

import pyarrow as pa

CACHE_BLOCK_TOKENS = 32
"""Engines cache prompts in blocks of so many tokens (here on a CPU; a GPU has 16 or more)."""

TOKEN_COLUMNS = ("prompt_token_ids", "question_token_ids")

Tokens = list[int] | tuple[int, ...]


def num_shared(prompts: Sequence[list[int]]) -> int:
    """Return with how many tokens all these prompts begin alike; of one prompt, all of them."""
    first, last = min(prompts), max(prompts)  # all others lie between these two
    shortest = min(len(first), len(last))
    if first[:shortest] == last[:shortest]:
        return shortest
    return next(i for i in range(shortest) if first[i] != last[i])


def prompts_of(shared: Tokens, tails: Sequence[Tokens] | None) -> list[tuple[int, ...]]:
    """Return the whole prompts of a planned row; see `PlanRow`."""
    begin = tuple(shared)
    return [begin] if tails is None else [begin + tuple(tail) for tail in tails]


def prompt_lengths(rows: pa.Table) -> list[tuple[int, ...]]:
    """Return the tokens of each prompt of each row; rows of `PLAN_ROWS` that are requests."""
    shared = _lengths(rows, "prompt_token_ids")
    tails = rows["question_token_ids"]
    if tails.null_count == len(tails):
        return [(begin,) for begin in shared]
    return [
        (begin,) if others is None else tuple(begin + len(tail) for tail in others)
        for begin, others in zip(shared, tails.to_pylist(), strict=True)
    ]


def num_spared_tokens(rows: pa.Table) -> int:
    """Return the prompt tokens in whole cache blocks that a row's own prompts share.

    The first prompt of a row computes them, the others find them; rows as in `prompt_lengths`.
    """
    if rows["question_token_ids"].null_count == rows.num_rows:
        return 0
    shared, prompts = (_lengths(rows, name) for name in TOKEN_COLUMNS)
    pairs = zip(shared, prompts, strict=True)
    return sum(begin // CACHE_BLOCK_TOKENS * (number - 1) for begin, number in pairs) * (
        CACHE_BLOCK_TOKENS
    )


def without_prompts(rows: pa.Table) -> pa.Table:
    """Return rows of `PLAN_ROWS` with null where their prompts' tokens were."""
    for name in TOKEN_COLUMNS:
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))
    return rows


def _lengths(rows: pa.Table, name: str) -> list[int]:
    return rows[name].combine_chunks().value_lengths().fill_null(0).to_pylist()
