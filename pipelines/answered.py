"""A batch whose requests are all answered, before anything is made of the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from pipelines.meter import Use
from schemas.commits import AttemptUse
from schemas.plans import PlannedBatch
from schemas.prompts import Fault
from schemas.requests import Answer, EngineFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredBatch:
    """A batch with all its answers: for each request, in row order, its answers or its fault.

    `tries` counts how often each request went to an engine. `first_asks` are the places, among
    a request's answers, of the first on each of its prompts. `facts` is None where no request
    of the batch needed an engine. `so_far` is what the attempt had used by now.
    """

    batch: PlannedBatch
    rows: pa.Table
    answers: tuple[tuple[Answer, ...] | Fault, ...]
    first_asks: tuple[int, ...]
    tries: tuple[int, ...]
    use: Use
    so_far: AttemptUse | None
    first_step_at: datetime | None
    facts: EngineFacts | None

    def num_cached_tokens(self, answers: Sequence[Answer]) -> int | None:
        """Return the cached tokens of one request's prompts, each counted once; None: not known."""
        cached = [answers[place].num_cached_tokens for place in self.first_asks]
        known = [tokens for tokens in cached if tokens is not None]
        return sum(known) if known else None
