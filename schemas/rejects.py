"""One row of `REJECTS` per prompt that was not answered, under a stable code."""

from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from schemas.generations import ANSWERS, QuestionAnswer

RejectCode = Literal[
    "NULL_PROMPT",
    "EMPTY_PROMPT",
    "NOT_TEXT",
    "TEMPLATE_ERROR",
    "PROMPT_TOO_LONG",
    "BAD_SAMPLING",
    "NULL_ID",
    "DUPLICATE_ID",
    "INVALID_OUTPUT",
    "ENGINE_CRASH",
    "TIMEOUT",
    "FILE_UNREADABLE",
]
"""Why a row has no generation. Codes are never renamed or reused."""

REJECT_CODES: tuple[RejectCode, ...] = get_args(RejectCode)

Stage = Literal["ingest", "plan", "generate"]
"""The step that found the reason."""

MAX_MESSAGE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """One row of `REJECTS`: a prompt that was not answered, and why.

    `row` is None for a whole file that cannot be read. `message` never quotes the prompt.
    `text` is what the model wrote, only for INVALID_OUTPUT and only where the job keeps it.
    `answers` are those of the job's questions that were answered well, where another was not.
    """

    row_key: str
    file: str
    row: int | None
    batch_id: str
    stage: Stage
    code: RejectCode
    message: str
    request_id: str | None
    num_tries: int
    epoch: int
    text: str | None
    answers: tuple[QuestionAnswer, ...] | None


REJECTS = pa.schema(
    [
        pa.field("row_key", pa.large_string(), nullable=False),
        pa.field("file", pa.large_string(), nullable=False),
        pa.field("row", pa.int64()),
        pa.field("batch_id", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("request_id", pa.string()),
        pa.field("num_tries", pa.int32(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("text", pa.large_string()),
        pa.field("answers", ANSWERS),
    ],
    metadata={"promptmill.table": "rejects", "promptmill.version": "2"},
)
