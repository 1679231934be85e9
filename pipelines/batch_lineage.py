"""The lineage of one batch: what it was made from and by, what it took and what it cost."""

import json
from collections import Counter
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa

from pipelines.answered import AnsweredBatch
from schemas.checkpoints import Checkpoint
from schemas.ids import CODE_VERSION
from schemas.lineage import BatchLineage
from schemas.output_lengths import OutputLengths
from schemas.prompts import Fault
from schemas.runs import RunIdentity

_COUNTED = [
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "num_truncated_tokens",
    "is_fanned_out",
    "finish_reason",
    "queue_s",
    "ttft_s",
    "tpot_s",
]
"""Columns of generations that a batch's lineage adds up; polars reads no map columns."""


def batch_lineage(
    answered: AnsweredBatch,
    generations: pa.Table,
    *,
    identity: RunIdentity,
    checkpoint: Checkpoint,
    epoch: int,
    usd_per_device_hour: float,
) -> BatchLineage:
    """Return the batch's row of `LINEAGE`; `generations` are its rows that were answered well.

    Tokens are those that were asked and paid: also of answers that became rejects, and of a
    shared request once.
    """
    batch, use, facts = answered.batch, answered.use, answered.facts
    frame = pl.DataFrame(generations.select(_COUNTED))
    own, shared = frame.filter(~pl.col("is_fanned_out")), frame.filter("is_fanned_out")
    num_prompt, num_cached, num_output = _asked_tokens(answered)
    num_tokens = num_prompt + num_output
    usd = use.device_s / 3600 * usd_per_device_hour
    finished = Counter(own["finish_reason"].to_list())
    return BatchLineage(
        run_key=identity.run_key,
        batch_id=batch.batch_id,
        epoch=epoch,
        job_name=identity.job_name,
        partition=identity.partition,
        num_rows=batch.num_rows,
        num_generations=generations.num_rows,
        num_rejects=batch.num_rows - generations.num_rows,
        num_requests=batch.num_requests,
        num_shared=batch.num_shared,
        num_prompt_tokens=num_prompt,
        num_cached_tokens=num_cached,
        num_output_tokens=num_output,
        num_shared_prompt_tokens=_sum(shared, "num_prompt_tokens"),
        num_shared_output_tokens=_sum(shared, "num_output_tokens"),
        predicted_output_tokens=batch.predicted_output_tokens,
        max_output_tokens=batch.max_output_tokens,
        output_lengths=_output_lengths(answered).to_text(),
        num_truncated_rows=frame.filter(pl.col("num_truncated_tokens") > 0).height,
        num_finished_stop=finished["stop"],
        num_finished_length=finished["length"],
        num_tries=max(answered.tries, default=0),
        device_s=use.device_s,
        usd=usd,
        usd_per_million_tokens=usd / num_tokens * 1e6 if num_tokens else None,
        tokens_per_s=num_tokens / use.device_s if use.device_s > 0 else None,
        ttft_p50_s=own["ttft_s"].quantile(0.5),
        ttft_p95_s=own["ttft_s"].quantile(0.95),
        tpot_p50_s=own["tpot_s"].quantile(0.5),
        tpot_p95_s=own["tpot_s"].quantile(0.95),
        queue_p50_s=own["queue_s"].quantile(0.5),
        kv_peak_fraction=use.kv_peak_fraction,
        num_preemptions=use.num_preemptions,
        first_step_at=None
        if answered.first_step_at is None
        else answered.first_step_at.isoformat(),
        committed_at=datetime.now(UTC).isoformat(),
        engine=facts.engine if facts else "none",
        engine_version=facts.engine_version if facts else "none",
        device_name=facts.device_name if facts else "none",
        num_devices=facts.num_devices if facts else 0,
        model_id=checkpoint.model_id,
        model_revision=checkpoint.model_revision,
        weights=checkpoint.weights,
        weights_hash=checkpoint.weights_hash,
        profile_id=identity.profile_id,
        prompt_id=identity.prompt_id,
        settings=json.dumps(facts.settings if facts else {}, sort_keys=True),
        code_version=CODE_VERSION,
    )


def _asked_tokens(answered: AnsweredBatch) -> tuple[int, int, int]:
    """Return prompt tokens, those of them that were cached, and output tokens of all requests.

    A row may take several engine requests on the same prompt (labels), and several prompts
    (questions): each prompt counts once, output tokens all.
    """
    prompt_tokens = answered.rows["num_prompt_tokens"].to_pylist()
    num_prompt = num_cached = num_output = 0
    for num_tokens, found in zip(prompt_tokens, answered.answers, strict=False):
        if not isinstance(found, Fault):
            num_prompt += num_tokens
            num_cached += answered.num_cached_tokens(found) or 0
            num_output += sum(len(one.token_ids) for one in found)
    return num_prompt, num_cached, num_output


def _output_lengths(answered: AnsweredBatch) -> OutputLengths:
    prompt_tokens = answered.rows["num_prompt_tokens"].to_pylist()
    return OutputLengths.of(
        (num_tokens, sum(len(one.token_ids) for one in found))
        for num_tokens, found in zip(prompt_tokens, answered.answers, strict=False)
        if not isinstance(found, Fault)
    )


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
