"""The lineage of one batch: what it was made from and by, what it took and what it cost."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa

from pipelines.answered import AnsweredBatch
from pipelines.meter import Use
from pipelines.savings import saved_usd, shared_work
from schemas.checkpoints import Checkpoint
from schemas.ids import CODE_VERSION, content_id
from schemas.job_spec import Price
from schemas.lineage import BatchLineage
from schemas.output_lengths import OutputLengths
from schemas.prompts import Fault
from schemas.requests import EngineFacts
from schemas.runs import RunIdentity

SETTINGS_SCHEME = "set1"
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
_JOULES_PER_KWH = 3.6e6

_Columns = dict[str, Any]
"""Some columns of `LINEAGE` by name. Together they must be all of them, each once, or
`BatchLineage` refuses them; their types are checked when the table is made."""


def batch_lineage(
    answered: AnsweredBatch,
    generations: pa.Table,
    *,
    identity: RunIdentity,
    checkpoint: Checkpoint,
    epoch: int,
    price: Price,
) -> BatchLineage:
    """Return the batch's row of `LINEAGE`; `generations` are its rows that were answered well.

    Tokens are those that were asked and paid: also of answers that became rejects, and of a
    shared request once.
    """
    frame = pl.DataFrame(generations.select(_COUNTED))
    tokens = _tokens(answered)
    return BatchLineage(
        epoch=epoch,
        committed_at=datetime.now(UTC).isoformat(),
        code_version=CODE_VERSION,
        **tokens,
        **_identity(identity),
        **_rows(answered, frame),
        **_cost(answered.use, price, tokens["num_prompt_tokens"] + tokens["num_output_tokens"]),
        **_savings(answered, frame, price.usd_per_device_hour),
        **_speed(answered, frame.filter(~pl.col("is_fanned_out"))),
        **_engine(answered.facts),
        **_model(checkpoint),
    )


def _identity(identity: RunIdentity) -> _Columns:
    names = ("run_key", "job_name", "partition", "profile_id", "prompt_id")
    return {name: getattr(identity, name) for name in names}


def _rows(answered: AnsweredBatch, frame: pl.DataFrame) -> _Columns:
    """Return what the batch's rows became."""
    batch = answered.batch
    shared = frame.filter("is_fanned_out")
    finished = Counter(frame.filter(~pl.col("is_fanned_out"))["finish_reason"].to_list())
    return {
        "batch_id": batch.batch_id,
        "num_rows": batch.num_rows,
        "num_generations": frame.height,
        "num_rejects": batch.num_rows - frame.height,
        "num_requests": batch.num_requests,
        "num_shared": batch.num_shared,
        "num_shared_prompt_tokens": _sum(shared, "num_prompt_tokens"),
        "num_shared_output_tokens": _sum(shared, "num_output_tokens"),
        "num_truncated_rows": frame.filter(pl.col("num_truncated_tokens") > 0).height,
        "num_finished_stop": finished["stop"],
        "num_finished_length": finished["length"],
        "num_tries": max(answered.tries, default=0),
    }


def _tokens(answered: AnsweredBatch) -> _Columns:
    """Return the tokens of all requests: expected, asked, cached, and what came out.

    A row may take several engine requests on the same prompt (labels), and several prompts
    (questions): each prompt counts once, output tokens all.
    """
    prompt_tokens = answered.rows["num_prompt_tokens"].to_pylist()
    asked = [
        (
            num_tokens,
            answered.num_cached_tokens(found) or 0,
            sum(len(one.token_ids) for one in found),
        )
        for num_tokens, found in zip(prompt_tokens, answered.answers, strict=False)
        if not isinstance(found, Fault)
    ]
    lengths = OutputLengths.of((num_prompt, num_output) for num_prompt, _, num_output in asked)
    return {
        "num_prompt_tokens": sum(num_prompt for num_prompt, _, _ in asked),
        "num_cached_tokens": sum(num_cached for _, num_cached, _ in asked),
        "num_output_tokens": sum(num_output for _, _, num_output in asked),
        "predicted_output_tokens": answered.batch.predicted_output_tokens,
        "max_output_tokens": answered.batch.max_output_tokens,
        "output_lengths": lengths.to_text(),
    }


def _cost(use: Use, price: Price, num_tokens: int) -> _Columns:
    """Return device time, its price, and how near the device's limit it was."""
    usd = use.device_s / 3600 * price.usd_per_device_hour
    is_known = use.limit_s is not None and use.device_s > 0
    has_energy_price = use.energy_j is not None and price.usd_per_kwh is not None
    return {
        "device_s": use.device_s,
        "usd": usd,
        "usd_per_million_tokens": usd / num_tokens * 1e6 if num_tokens else None,
        "tokens_per_s": num_tokens / use.device_s if use.device_s > 0 else None,
        "usd_per_device_hour": price.usd_per_device_hour,
        "limit_s": use.limit_s,
        "fraction_of_limit": (use.limit_s or 0.0) / use.device_s if is_known else None,
        "bound_by": use.bound_by,
        "energy_j": use.energy_j,
        "energy_usd": (use.energy_j or 0.0) / _JOULES_PER_KWH * (price.usd_per_kwh or 0.0)
        if has_energy_price
        else None,
    }


def _savings(answered: AnsweredBatch, frame: pl.DataFrame, usd_per_device_hour: float) -> _Columns:
    """Return the price of what was not computed, because rows or prefixes were the same."""
    roofline = None if answered.facts is None else answered.facts.roofline
    columns = ["num_prompt_tokens", "num_output_tokens"]
    shared = frame.filter("is_fanned_out").select(columns).rows()
    cached = [
        found[place].num_cached_tokens or 0
        for found in answered.answers
        if not isinstance(found, Fault)
        for place in answered.first_asks
    ]
    return {
        "saved_dedup_usd": saved_usd(
            shared_work(outputs=shared), answered.use, roofline, usd_per_device_hour
        ),
        "saved_prefix_usd": saved_usd(
            shared_work(prefixes=cached), answered.use, roofline, usd_per_device_hour
        ),
    }


def _speed(answered: AnsweredBatch, own: pl.DataFrame) -> _Columns:
    """Return the times of the batch's own requests, and how full the KV cache was."""
    use, first = answered.use, answered.first_step_at
    times = {
        f"{name}_p{percent}_s": own[f"{name}_s"].quantile(percent / 100)
        for name in ("ttft", "tpot", "queue")
        for percent in (50, 95)
    }
    return {
        **times,
        "kv_peak_fraction": use.kv_peak_fraction,
        "num_preemptions": use.num_preemptions,
        "first_step_at": None if first is None else first.isoformat(),
    }


def _engine(facts: EngineFacts | None) -> _Columns:
    """Return what computed the batch; no engine where no request needed one."""
    settings = facts.settings if facts else {}
    limits = facts.roofline.limits if facts and facts.roofline else None
    return {
        "engine": facts.engine if facts else "none",
        "engine_version": facts.engine_version if facts else "none",
        "device_name": facts.device_name if facts else "none",
        "num_devices": facts.num_devices if facts else 0,
        "device_int8_ops_per_s": limits.int8_ops_per_s if limits else None,
        "device_float_ops_per_s": limits.float_ops_per_s if limits else None,
        "device_bytes_per_s": limits.bytes_per_s if limits else None,
        "device_limits": limits.source if limits else None,
        "gpu_memory_bytes": facts.memory_bytes if facts and facts.is_gpu else None,
        "settings": json.dumps(settings, sort_keys=True),
        "settings_hash": content_id(SETTINGS_SCHEME, settings),
    }


def _model(checkpoint: Checkpoint) -> _Columns:
    names = ("model_id", "model_revision", "weights", "weights_hash")
    return {name: getattr(checkpoint, name) for name in names}


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
