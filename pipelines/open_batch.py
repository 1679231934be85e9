"""A batch while it is generated: its answers so far."""

from dataclasses import dataclass, field
from datetime import datetime

from pipelines.plan_parts import BatchRows
from schemas.prompts import Fault
from schemas.requests import Answer


@dataclass(slots=True)
class OpenBatch:
    """A batch with requests not yet answered."""

    group: int
    cut: BatchRows
    answers: list[list[Answer | None]]
    faults: dict[int, Fault] = field(default_factory=dict)
    tries: list[int] = field(default_factory=list)
    num_open: int = 0
    first_step_at: datetime | None = None

    def found(self) -> tuple[tuple[Answer, ...] | Fault, ...]:
        """Return every request's answers or fault; only once `num_open` is 0."""
        return tuple(
            self.faults.get(i) or tuple(one for one in row if one is not None)
            for i, row in enumerate(self.answers)
        )
