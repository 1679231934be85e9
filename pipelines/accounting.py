"""Who pays for what: engine steps are shared among batches, the rest is load or idle.

Each step's seconds are shared among the batches in it by the work each did, so the sum over
batches is the sum of the steps, always.
"""

import time
from dataclasses import dataclass, field

from schemas.errors import StoppedByLimitError
from schemas.requests import EngineFacts, Poll, StepStats, StepWork


def work_weight(work: StepWork) -> int:
    """Return what this work weighs in its step: the tokens computed, prompt and output alike.

    Only ratios within one step count. Cached prompt tokens are not computed and not paid.
    """
    return work.num_prefill_tokens + work.num_decode_tokens


@dataclass(slots=True)
class GroupUse:
    """What the engine did for one batch so far."""

    device_s: float = 0.0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    num_preemptions: int = 0
    kv_peak_fraction: float | None = None


@dataclass(slots=True)
class Meter:
    """Adds up engine steps: per batch, and over all."""

    num_devices: int = 1
    busy_s: float = 0.0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    uses: dict[int, GroupUse] = field(default_factory=dict)

    def add(self, step: StepStats) -> None:
        """Share this step among the groups in it; a step without work counts as idle."""
        weights = [work_weight(work) for work in step.work]
        total = sum(weights)
        if total <= 0:
            return
        self.busy_s += step.duration_s
        for work, weight in zip(step.work, weights, strict=True):
            use = self.uses.setdefault(work.group, GroupUse())
            use.device_s += step.duration_s * self.num_devices * weight / total
            use.num_prefill_tokens += work.num_prefill_tokens
            use.num_decode_tokens += work.num_decode_tokens
            self.num_prefill_tokens += work.num_prefill_tokens
            self.num_decode_tokens += work.num_decode_tokens
            use.num_preemptions += step.num_preemptions
            use.kv_peak_fraction = max(use.kv_peak_fraction or 0.0, step.kv_usage_fraction)

    def use(self, group: int) -> GroupUse:
        """Return what the engine did for this group; nothing yet is a zero bill."""
        return self.uses.get(group, GroupUse())

    def device_s(self, group: int) -> float:
        """Return the device-seconds of this group so far."""
        return self.use(group).device_s


@dataclass(slots=True)
class Spent:
    """What one attempt's engines took, in seconds of wall time.

    Always load + busy + idle = wall; of the busy seconds `wasted_s` went into batches that
    another attempt committed first, or that were not finished. Devices are held for all of
    `wall_s`, which runs from the first engine's start to the last one's end.
    """

    started_s: float | None = None
    wall_s: float = 0.0
    load_s: float = 0.0
    wasted_s: float = 0.0
    num_devices: int = 1
    num_restarts: int = 0
    num_rows: int = 0
    num_batches: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    meter: Meter = field(default_factory=Meter)
    facts: EngineFacts | None = None

    def start(self, since_s: float) -> None:
        """Note since when an engine is held (monotonic); the earliest one starts the clock."""
        self.started_s = since_s if self.started_s is None else min(self.started_s, since_s)

    def ready(self, facts: EngineFacts) -> None:
        """Note what the engine is."""
        self.facts = facts
        self.num_devices = self.meter.num_devices = facts.num_devices

    def tick(self) -> None:
        """Bring `wall_s` up to now."""
        if self.started_s is not None:
            self.wall_s = time.monotonic() - self.started_s

    @property
    def generate_s(self) -> float:
        """Wall seconds in which an engine was ready."""
        return max(0.0, self.wall_s - self.load_s)

    @property
    def idle_s(self) -> float:
        """Wall seconds in which an engine was ready and made no step."""
        return self.wall_s - self.load_s - self.meter.busy_s

    @property
    def device_s(self) -> float:
        """Device-seconds held."""
        return self.wall_s * self.num_devices

    def usd(self, usd_per_device_hour: float) -> float:
        """Return the price of the device-seconds held."""
        return self.device_s / 3600 * usd_per_device_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When an attempt must stop; None for no bound.

    The deadline counts from `started_s` (monotonic), when the run was asked for: planning and
    loading are part of it.
    """

    started_s: float
    usd_per_device_hour: float = 0.0
    max_usd: float | None = None
    deadline_s: float | None = None

    def check(self, spent: Spent) -> None:
        """Return while there is money and time left.

        Raises:
            StoppedByLimitError: there is none; finished batches are committed, a re-run resumes.
        """
        usd = spent.usd(self.usd_per_device_hour)
        if self.max_usd is not None and usd >= self.max_usd:
            raise StoppedByLimitError(f"limits.max_usd: {usd:.4f} of {self.max_usd} USD are spent")
        passed_s = time.monotonic() - self.started_s
        if self.deadline_s is not None and passed_s >= self.deadline_s:
            raise StoppedByLimitError(f"limits.deadline: {passed_s:.0f} s have passed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How generation goes: what was spent so far, and what the last poll brought."""

    spent: Spent
    poll: Poll
