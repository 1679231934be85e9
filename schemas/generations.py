"""One row of `GENERATIONS` per prompt that was answered."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

FinishReason = Literal["stop", "length"]
"""Why generation ended, in vLLM's words; `length` means cut at max_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """The answer to one of a job's questions on one row.

    `label` and what belongs to it are None for questions without choices. Tokens are of all
    engine requests that the question took; its prompt counts once.
    """

    question: str
    text: str
    finish_reason: FinishReason
    label: str | None
    label_probabilities: tuple[tuple[str, float], ...] | None
    label_margin: float | None
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One row of `GENERATIONS`: the answer to one prompt, and how it was made.

    Timings are None when the engine kept none, never 0.0. `is_fanned_out` marks a row that
    got its answer from the same request of an earlier row; its tokens were not paid again.
    `num_truncated_tokens` counts prompt tokens that the job allowed to cut.
    `label`, `label_probabilities` (over all choices, sum 1) and `label_margin` (best minus
    second) are None for jobs without labels.

    A job with questions has one row for each row of the input, too: `answers` are those of all
    its questions, in the job's order, `text` is a JSON object of their texts by name,
    `finish_reason` is `length` if one was cut, tokens are of all, timings of the first.
    `answers` is None for jobs without questions.
    """

    row_key: str
    file: str
    row: int
    batch_id: str
    request_id: str
    text: str
    finish_reason: FinishReason
    stop_reason: str | None
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_output_tokens: int
    num_truncated_tokens: int
    is_fanned_out: bool
    max_tokens: int
    temperature: float
    seed: int | None
    queue_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    label: str | None
    label_probabilities: tuple[tuple[str, float], ...] | None
    label_margin: float | None
    answers: tuple[QuestionAnswer, ...] | None


PROBABILITY = pa.struct(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""A choice and its probability: an entry of a map, for readers that know no maps in structs."""

ANSWERS = pa.large_list(
    pa.struct(
        [
            pa.field("question", pa.string(), nullable=False),
            pa.field("text", pa.large_string(), nullable=False),
            pa.field("finish_reason", pa.string(), nullable=False),
            pa.field("label", pa.string()),
            pa.field("label_probabilities", pa.list_(PROBABILITY)),
            pa.field("label_margin", pa.float64()),
            pa.field("num_prompt_tokens", pa.int32(), nullable=False),
            pa.field("num_cached_tokens", pa.int32()),
            pa.field("num_output_tokens", pa.int32(), nullable=False),
        ]
    )
)
"""The answers to a job's questions on one row; the fields are those of `QuestionAnswer`."""

GENERATIONS = pa.schema(
    [
        pa.field("row_key", pa.large_string(), nullable=False),
        pa.field("file", pa.large_string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("batch_id", pa.string(), nullable=False),
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("stop_reason", pa.string()),
        pa.field("num_prompt_tokens", pa.int32(), nullable=False),
        pa.field("num_cached_tokens", pa.int32()),
        pa.field("num_output_tokens", pa.int32(), nullable=False),
        pa.field("num_truncated_tokens", pa.int32(), nullable=False),
        pa.field("is_fanned_out", pa.bool_(), nullable=False),
        pa.field("max_tokens", pa.int32(), nullable=False),
        pa.field("temperature", pa.float64(), nullable=False),
        pa.field("seed", pa.int64()),
        pa.field("queue_s", pa.float64()),
        pa.field("ttft_s", pa.float64()),
        pa.field("tpot_s", pa.float64()),
        pa.field("label", pa.string()),
        pa.field("label_probabilities", pa.map_(pa.string(), pa.float64())),
        pa.field("label_margin", pa.float64()),
        pa.field("answers", ANSWERS),
    ],
    metadata={"promptmill.table": "generations", "promptmill.version": "2"},
)
