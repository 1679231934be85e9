"""A batch whose requests are all answered, before anything is made of the answers."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from pipelines.accounting import GroupUse
from schemas.plans import PlannedBatch
from schemas.prompts import Fault
from schemas.requests import Answer, EngineFacts


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
