"""A batch whose requests are all answered, as the tables and the bill that one commit holds.

Shared rows get the answer, or the reject, of the request they share.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa

from pipelines.accounting import GroupUse
from pipelines.asking import Asking, Meaning
from schemas.checkpoints import Checkpoint
from schemas.generations import GENERATIONS
from schemas.ids import CODE_VERSION, request_id
from schemas.lineage import BatchLineage
from schemas.plans import PlannedBatch
from schemas.prompts import Fault
from schemas.rejects import MAX_MESSAGE_CHARACTERS, REJECTS
from schemas.requests import Answer, EngineFacts, SamplingSettings
from schemas.runs import RunIdentity

_Column = pa.Array | pa.ChunkedArray | Sequence[object]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredBatch:
    """A batch with all its answers: for each request, in row order, its answers or its fault.

    `tries` counts how often each request went to an engine. `facts` is None where no request
    of the batch needed an engine.
    """

    batch: PlannedBatch
    rows: pa.Table
    answers: tuple[tuple[Answer, ...] | Fault, ...]
    tries: tuple[int, ...]
    use: GroupUse
    first_step_at: datetime | None
    facts: EngineFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a batch's commit publishes."""

    batch_id: str
    generations: pa.Table
    rejects: pa.Table
    rejects_by_code: dict[str, int]
    lineage: BatchLineage


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWriter:
    """Turns answered batches into outcomes, for one attempt at one run."""

    identity: RunIdentity
    checkpoint: Checkpoint
    asking: Asking
    sampling: SamplingSettings
    file_keys: tuple[str, ...]
    epoch: int
    usd_per_device_hour: float
    keep_invalid_text: bool

    def outcome(self, answered: AnsweredBatch) -> Outcome:
        """Return the batch's tables and lineage; every row is in exactly one of the tables."""
        ok = [i for i, found in enumerate(answered.answers) if not isinstance(found, Fault)]
        kept = [found for found in answered.answers if not isinstance(found, Fault)]
        meanings = dict(zip(ok, self.asking.meanings(kept), strict=True)) if ok else {}
        faults: dict[int, tuple[Fault, str | None]] = {
            i: (found, None) for i, found in enumerate(answered.answers) if isinstance(found, Fault)
        }
        for i, meaning in meanings.items():
            if meaning.fault is not None:
                faults[i] = (meaning.fault, meaning.text if self.keep_invalid_text else None)
        sources = _sources(answered)
        rejects = self._rejects(answered, sources, faults)
        generations = self._generations(answered, sources, meanings, faults)
        by_code = Counter(rejects["code"].to_pylist())
        lineage = self._lineage(answered, generations, rejects)
        return Outcome(
            batch_id=answered.batch.batch_id,
            generations=generations,
            rejects=rejects,
            rejects_by_code=dict(sorted(by_code.items())),
            lineage=lineage,
        )

    def _generations(
        self,
        answered: AnsweredBatch,
        sources: Sequence[int | None],
        meanings: Mapping[int, Meaning],
        faults: Mapping[int, tuple[Fault, str | None]],
    ) -> pa.Table:
        places = [
            i for i, source in enumerate(sources) if source is not None and source not in faults
        ]
        rows = answered.rows.take(pa.array(places, type=pa.int64()))
        order = [source for i in places if (source := sources[i]) is not None]
        first = [answered.answers[source] for source in order]
        tables = [found for found in first if not isinstance(found, Fault)]
        meant = [meanings[source] for source in order]
        job = self.sampling
        columns = {
            "row_key": rows["row_key"],
            "file": self._files(rows),
            "row": rows["row"],
            "batch_id": [answered.batch.batch_id] * len(places),
            "request_id": _request_ids(rows),
            "text": [meaning.text for meaning in meant],
            "finish_reason": [meaning.finish_reason for meaning in meant],
            "stop_reason": [meaning.stop_reason for meaning in meant],
            "num_prompt_tokens": rows["num_prompt_tokens"],
            "num_cached_tokens": [_cached(found) for found in tables],
            "num_output_tokens": [sum(len(one.token_ids) for one in found) for found in tables],
            "num_truncated_tokens": rows["num_truncated_tokens"],
            "is_fanned_out": [i >= answered.batch.num_requests for i in places],
            "max_tokens": rows["max_tokens"].fill_null(job.max_tokens),
            "temperature": rows["temperature"].fill_null(job.temperature),
            "seed": rows["seed"] if job.seed is None else rows["seed"].fill_null(job.seed),
            "queue_s": [found[0].queue_s for found in tables],
            "ttft_s": [found[0].ttft_s for found in tables],
            "tpot_s": [found[0].tpot_s for found in tables],
            "label": [meaning.label for meaning in meant],
            "label_probabilities": [meaning.label_probabilities for meaning in meant],
            "label_margin": [meaning.label_margin for meaning in meant],
        }
        return _table(columns, GENERATIONS)

    def _rejects(
        self,
        answered: AnsweredBatch,
        sources: Sequence[int | None],
        faults: Mapping[int, tuple[Fault, str | None]],
    ) -> pa.Table:
        places = [i for i, source in enumerate(sources) if source is None or source in faults]
        rows = answered.rows.take(pa.array(places, type=pa.int64()))
        found = [faults.get(source) if (source := sources[i]) is not None else None for i in places]
        planned = zip(
            rows["reject_stage"].to_pylist(),
            rows["reject_code"].to_pylist(),
            rows["reject_message"].to_pylist(),
            strict=True,
        )
        told = [
            ("generate", *fault[0]) if fault is not None else plan
            for fault, plan in zip(found, planned, strict=True)
        ]
        columns = {
            "row_key": rows["row_key"],
            "file": self._files(rows),
            "row": rows["row"],
            "batch_id": [answered.batch.batch_id] * len(places),
            "stage": [stage for stage, _, _ in told],
            "code": [code for _, code, _ in told],
            "message": [message[:MAX_MESSAGE_CHARACTERS] for _, _, message in told],
            "request_id": _request_ids(rows),
            "num_tries": [0 if (s := sources[i]) is None else answered.tries[s] for i in places],
            "epoch": [self.epoch] * len(places),
            "text": [None if fault is None else fault[1] for fault in found],
        }
        return _table(columns, REJECTS)

    def _files(self, rows: pa.Table) -> pa.Array:
        return pa.array(self.file_keys, type=pa.large_string()).take(
            rows["file_number"].combine_chunks()
        )

    def _lineage(
        self, answered: AnsweredBatch, generations: pa.Table, rejects: pa.Table
    ) -> BatchLineage:
        batch, use, facts = answered.batch, answered.use, answered.facts
        frame = pl.DataFrame(generations.select(_COUNTED))
        own, shared = frame.filter(~pl.col("is_fanned_out")), frame.filter("is_fanned_out")
        asked = [found for found in answered.answers if not isinstance(found, Fault)]
        num_prompt = _sum(own, "num_prompt_tokens")
        num_output = sum(len(one.token_ids) for found in asked for one in found)
        num_tokens = num_prompt + num_output
        usd = use.device_s / 3600 * self.usd_per_device_hour
        finished = Counter(own["finish_reason"].to_list())
        return BatchLineage(
            run_key=self.identity.run_key,
            batch_id=batch.batch_id,
            epoch=self.epoch,
            job_name=self.identity.job_name,
            partition=self.identity.partition,
            num_rows=batch.num_rows,
            num_generations=generations.num_rows,
            num_rejects=rejects.num_rows,
            num_requests=batch.num_requests,
            num_shared=batch.num_shared,
            num_prompt_tokens=num_prompt,
            num_cached_tokens=_sum(own, "num_cached_tokens"),
            num_output_tokens=num_output,
            num_shared_prompt_tokens=_sum(shared, "num_prompt_tokens"),
            num_shared_output_tokens=_sum(shared, "num_output_tokens"),
            predicted_output_tokens=batch.predicted_output_tokens,
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
            model_id=self.checkpoint.model_id,
            model_revision=self.checkpoint.model_revision,
            weights=self.checkpoint.weights,
            weights_hash=self.checkpoint.weights_hash,
            profile_id=self.identity.profile_id,
            settings=json.dumps(facts.settings if facts else {}, sort_keys=True),
            code_version=CODE_VERSION,
        )


def _sources(answered: AnsweredBatch) -> list[int | None]:
    """Return for each row the number of the request that answers it; None for a planned reject."""
    digests = answered.rows["request_digest"].to_pylist()
    num_requests = answered.batch.num_requests
    by_digest = {digest: i for i, digest in enumerate(digests[:num_requests])}
    shared = [None if digest is None else by_digest[digest] for digest in digests[num_requests:]]
    return [*range(num_requests), *shared]


def _request_ids(rows: pa.Table) -> list[str | None]:
    digests = rows["request_digest"].to_pylist()
    return [None if digest is None else request_id(digest) for digest in digests]


def _table(columns: Mapping[str, _Column], schema: pa.Schema) -> pa.Table:
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = columns[name]
        if isinstance(column, pa.Array | pa.ChunkedArray):
            arrays.append(column.cast(kind))
        else:
            arrays.append(pa.array(column, type=kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def _cached(answers: Sequence[Answer]) -> int | None:
    """Return the cached prompt tokens of a row's first request: those of its own prompt."""
    return answers[0].num_cached_tokens


def _sum(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].cast(pl.Int64).sum())
