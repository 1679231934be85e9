"""The written cut of a run into batches: `Plan` (plan.json) and its rows (`PLAN_ROWS`).

The plan's parts hold one row per input row, one row group per batch, in the order in which
requests are fed. They hold the prompts' tokens, so that a run never reads its input twice
(docs/decisions/0005).
"""

from dataclasses import dataclass

import pyarrow as pa

from schemas.rejects import RejectCode, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One row of `PLAN_ROWS`: one row of the input, in the batch that accounts for it.

    A row is one of three: a request (it has `prompt_token_ids`), a row that shares the
    request of an earlier row (`request_digest` alone), or a reject (`reject_code`).

    A row of a job with questions is one request that takes as many prompts: each is
    `prompt_token_ids`, which they all begin with, and one of `question_token_ids` (None for
    jobs without questions). `num_prompt_tokens` counts the tokens of all its prompts.

    `predicted_output_tokens` is what is expected of its answer, `max_output_tokens` what it may
    take at most. `prefix_group` numbers the shared beginnings of prompts; `max_tokens`,
    `temperature` and `seed` are the row's own settings, None for the job's.
    """

    row_key: str
    file_number: int
    row: int | None
    request_digest: bytes | None
    prompt_token_ids: tuple[int, ...] | None
    question_token_ids: tuple[tuple[int, ...], ...] | None
    num_prompt_tokens: int
    predicted_output_tokens: int
    max_output_tokens: int
    num_truncated_tokens: int
    prefix_group: int
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    reject_code: RejectCode | None
    reject_stage: Stage | None
    reject_message: str | None


PLAN_ROWS = pa.schema(
    [
        pa.field("row_key", pa.large_string(), nullable=False),
        pa.field("file_number", pa.int32(), nullable=False),
        pa.field("row", pa.int64()),
        pa.field("request_digest", pa.binary(32)),
        pa.field("prompt_token_ids", pa.large_list(pa.int32())),
        pa.field("question_token_ids", pa.large_list(pa.large_list(pa.int32()))),
        pa.field("num_prompt_tokens", pa.int32(), nullable=False),
        pa.field("predicted_output_tokens", pa.int32(), nullable=False),
        pa.field("max_output_tokens", pa.int32(), nullable=False),
        pa.field("num_truncated_tokens", pa.int32(), nullable=False),
        pa.field("prefix_group", pa.int32(), nullable=False),
        pa.field("max_tokens", pa.int32()),
        pa.field("temperature", pa.float64()),
        pa.field("seed", pa.int64()),
        pa.field("reject_code", pa.string()),
        pa.field("reject_stage", pa.string()),
        pa.field("reject_message", pa.string()),
    ],
    metadata={"promptmill.table": "plan", "promptmill.version": "1"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One input file: its key below the input's root, what its bytes are, and its rows.

    `fault` says why the file could not be read; then `num_rows` is None, and the whole file
    is one reject.
    """

    key: str
    fingerprint: str
    num_rows: int | None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """One batch: where its rows lie in the plan's parts, and what is expected of it.

    `num_rows` = `num_requests` + `num_shared` + `num_rejects`. `longest_tokens` is the most that
    prompt and output of one of its requests may come to; None for no request.
    """

    batch_id: str
    part: int
    row_group: int
    num_rows: int
    num_requests: int
    num_shared: int
    num_rejects: int
    num_prompt_tokens: int
    predicted_output_tokens: int
    max_output_tokens: int
    longest_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPart:
    """One Parquet file of the plan: key below the run, bytes and SHA-256."""

    key: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run's plan: everyone who works on the run follows the one that was written first.

    `profile_id` identifies model weights, sampling settings and output constraint. `job` is
    the job file's identity as JSON text, for readers. Token counts are of requests, shared
    rows counted once; `num_shared_tokens` are the prompt tokens that sharing saved.
    `prediction_basis` says in words what the predicted output tokens come from, and
    `output_lengths` holds the answers' lengths that they come from (`schemas.output_lengths`).
    """

    version: int
    run_key: str
    profile_id: str
    job: str
    partition: str | None
    input_uri: str
    id_column: str | None
    files: tuple[InputFile, ...]
    parts: tuple[PlanPart, ...]
    batches: tuple[PlannedBatch, ...]
    rejects_by_code: dict[str, int]
    num_shared_tokens: int
    num_prefix_tokens: int
    prediction_basis: str
    output_lengths: str
    planned_s: float

    @property
    def num_rows(self) -> int:
        """Input rows in all batches; an unreadable file counts as one."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def num_requests(self) -> int:
        """Distinct requests in all batches."""
        return sum(batch.num_requests for batch in self.batches)
