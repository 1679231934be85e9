"""Tokenized prompts as rows of `PLAN_ROWS`: columns, made a chunk at a time.

A dataclass for each row, and a table of those, took a third of planning's time.
"""

import json
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.row_prompts import num_shared
from schemas.ids import request_digest
from schemas.plans import PLAN_ROWS
from schemas.prompts import Fault, Prompt

_TOKEN_BYTES = 4
_JOBS_OWN = (None, None, None)


class TokenizedPrompts(NamedTuple):
    """A row that fits: its prompts' tokens, and the most that all its answers may take.

    There is one prompt, or with questions one for each of them.
    """

    prompts: list[list[int]]
    has_questions: bool
    num_output_tokens: int
    num_truncated_tokens: int


def rows_of(
    prompts: Sequence[Prompt], found: Sequence[TokenizedPrompts | Fault], profile_id: str
) -> pa.RecordBatch:
    """Return one row for each prompt, in order: a request where tokens were found, or a reject."""
    requests = [None if isinstance(one, Fault) else one for one in found]
    faults = [one if isinstance(one, Fault) else None for one in found]
    tokens = [_NO_TOKENS if one is None else _tokens_of(one) for one in requests]
    num_output = [0 if one is None else one.num_output_tokens for one in requests]
    columns: dict[str, list[Any] | pa.Array] = {
        "row_key": [prompt.row_key for prompt in prompts],
        "file_number": [prompt.file_number for prompt in prompts],
        "row": [prompt.row for prompt in prompts],
        "request_digest": _digests(prompts, tokens, profile_id),
        "prompt_token_ids": _token_lists([one.shared for one in tokens]),
        "question_token_ids": [one.tails for one in tokens],
        "num_prompt_tokens": [0 if one is None else sum(map(len, one.prompts)) for one in requests],
        "predicted_output_tokens": num_output,
        "max_output_tokens": num_output,
        "num_truncated_tokens": [
            0 if one is None else one.num_truncated_tokens for one in requests
        ],
        "prefix_group": [0] * len(prompts),
        "max_tokens": [prompt.max_tokens for prompt in prompts],
        "temperature": [prompt.temperature for prompt in prompts],
        "seed": [prompt.seed for prompt in prompts],
        "reject_code": [fault and fault.code for fault in faults],
        "reject_stage": [
            fault and ("plan" if prompt.fault is None else "ingest")
            for fault, prompt in zip(faults, prompts, strict=True)
        ],
        "reject_message": [fault and fault.message for fault in faults],
    }
    arrays = [_array(columns[field.name], field.type) for field in PLAN_ROWS]
    return pa.RecordBatch.from_arrays(arrays, schema=PLAN_ROWS)


class _Tokens(NamedTuple):
    """A row's tokens as the plan keeps them: what its prompts share as int32, and the rest."""

    shared: bytes | None
    tails: list[list[int]] | None


_NO_TOKENS = _Tokens(None, None)


def _tokens_of(found: TokenizedPrompts) -> _Tokens:
    if not found.has_questions:
        return _Tokens(array("i", found.prompts[0]).tobytes(), None)
    begin = num_shared(found.prompts)
    return _Tokens(
        array("i", found.prompts[0][:begin]).tobytes(), [one[begin:] for one in found.prompts]
    )


def _digests(
    prompts: Sequence[Prompt], tokens: Sequence[_Tokens], profile_id: str
) -> list[bytes | None]:
    digests: list[bytes | None] = []
    for prompt, (shared, tails) in zip(prompts, tokens, strict=True):
        if shared is None:
            digests.append(None)
            continue
        own = (prompt.max_tokens, prompt.temperature, prompt.seed)
        overrides = b"" if own == _JOBS_OWN else json.dumps(own).encode("ascii")
        content = shared if tails is None else _with_lengths(shared, tails)
        digests.append(request_digest(profile_id, overrides, content))
    return digests


def _with_lengths(shared: bytes, tails: Sequence[Sequence[int]]) -> bytes:
    """Return a row's prompts as bytes that no other prompts have."""
    ends = [piece for tail in tails for piece in (len(tail), *tail)]
    return array("i", [len(shared) // _TOKEN_BYTES]).tobytes() + shared + array("i", ends).tobytes()


def _token_lists(tokens: Sequence[bytes | None]) -> pa.LargeListArray:
    """Return lists of int32 tokens from their bytes, without a Python object for each token."""
    content = b"".join([one for one in tokens if one is not None])
    ends = list(accumulate([len(one or b"") // _TOKEN_BYTES for one in tokens], initial=0))
    return pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()),
        pa.Array.from_buffers(pa.int32(), ends[-1], [None, pa.py_buffer(content)]),
        mask=pa.array([one is None for one in tokens]),
    )


def _array(column: list[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array(column, type=kind) if isinstance(column, list) else column
