"""A batch whose requests are all answered, as the tables and the bill that one commit holds.

Shared rows get the answer, or the reject, of the request they share.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from pipelines.answered import AnsweredBatch
from pipelines.asking import Asking, Meaning
from pipelines.batch_lineage import batch_lineage
from pipelines.row_prompts import prompt_lengths
from schemas.checkpoints import Checkpoint
from schemas.commits import AttemptUse
from schemas.generations import GENERATIONS
from schemas.ids import request_id
from schemas.job_spec import Price
from schemas.lineage import BatchLineage
from schemas.prompts import Fault
from schemas.rejects import MAX_MESSAGE_CHARACTERS, REJECTS
from schemas.requests import Answer, SamplingSettings
from schemas.runs import RunIdentity

_Column = pa.Array | pa.ChunkedArray | list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a batch's commit publishes."""

    batch_id: str
    generations: pa.Table
    rejects: pa.Table
    rejects_by_code: dict[str, int]
    lineage: BatchLineage
    so_far: AttemptUse | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWriter:
    """Turns answered batches into outcomes, for one attempt at one run."""

    identity: RunIdentity
    checkpoint: Checkpoint
    asking: Asking
    sampling: SamplingSettings
    file_keys: tuple[str, ...]
    epoch: int
    price: Price
    keep_invalid_text: bool

    def outcome(self, answered: AnsweredBatch) -> Outcome:
        """Return the batch's tables and lineage; every row is in exactly one of the tables."""
        ok = [i for i, found in enumerate(answered.answers) if not isinstance(found, Fault)]
        kept = [found for found in answered.answers if not isinstance(found, Fault)]
        meanings = dict(zip(ok, self._meanings(answered, ok, kept), strict=True)) if ok else {}
        faults: dict[int, tuple[Fault, str | None]] = {
            i: (found, None) for i, found in enumerate(answered.answers) if isinstance(found, Fault)
        }
        for i, meaning in meanings.items():
            if meaning.fault is not None:
                faults[i] = (meaning.fault, meaning.text if self.keep_invalid_text else None)
        sources = _sources(answered)
        rejects = self._rejects(answered, sources, meanings, faults)
        generations = self._generations(answered, sources, meanings, faults)
        by_code = Counter(rejects["code"].to_pylist())
        lineage = batch_lineage(
            answered,
            generations,
            identity=self.identity,
            checkpoint=self.checkpoint,
            epoch=self.epoch,
            price=self.price,
        )
        return Outcome(
            batch_id=answered.batch.batch_id,
            generations=generations,
            rejects=rejects,
            rejects_by_code=dict(sorted(by_code.items())),
            lineage=lineage,
            so_far=answered.so_far,
        )

    def _meanings(
        self, answered: AnsweredBatch, ok: list[int], kept: Sequence[Sequence[Answer]]
    ) -> list[Meaning]:
        rows = answered.rows.take(pa.array(ok, type=pa.int64()))
        return self.asking.meanings(kept, prompt_lengths(rows))

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
            "num_cached_tokens": [answered.num_cached_tokens(found) for found in tables],
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
            "answers": [_answers(meaning) for meaning in meant],
        }
        return _table(columns, GENERATIONS)

    def _rejects(
        self,
        answered: AnsweredBatch,
        sources: Sequence[int | None],
        meanings: Mapping[int, Meaning],
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
        meant = [None if (s := sources[i]) is None else meanings.get(s) for i in places]
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
            "answers": [_answers(meaning) for meaning in meant],
        }
        return _table(columns, REJECTS)

    def _files(self, rows: pa.Table) -> pa.Array:
        return pa.array(self.file_keys, type=pa.large_string()).take(
            rows["file_number"].combine_chunks()
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
        is_plain = isinstance(column, list)
        arrays.append(pa.array(column, type=kind) if is_plain else column.cast(kind))
    return pa.Table.from_arrays(arrays, schema=schema)


def _answers(meaning: Meaning | None) -> list[dict[str, Any]] | None:
    """Return a row's answers to the job's questions as Arrow takes them."""
    if meaning is None or meaning.answers is None:
        return None
    return [
        {
            **asdict(answer),
            "label_probabilities": None
            if answer.label_probabilities is None
            else [{"key": key, "value": value} for key, value in answer.label_probabilities],
        }
        for answer in meaning.answers
    ]
