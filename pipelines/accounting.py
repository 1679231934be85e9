"""What an attempt spends: load, engine steps, idle and tail idle make the time devices are held.

How steps are shared among batches is the meter's (meter.py).
"""

import time
from dataclasses import dataclass, field

from pipelines.meter import Meter, Tail
from pipelines.step_costs import StepAdder
from schemas.commits import AttemptUse
from schemas.requests import EngineFacts, Poll, StepStats


@dataclass(slots=True)
class Spent:
    """What one attempt's engines took, in seconds of wall time.

    Always load + busy + idle + tail idle = wall; of the busy seconds `wasted_s` went into
    batches that another attempt committed first, or that were not finished. Devices are held
    for all of `wall_s`, which runs from the first engine's start to the last one's end.
    """

    started_s: float | None = None
    wall_s: float = 0.0
    load_s: float = 0.0
    wasted_s: float = 0.0
    num_devices: int = 1
    num_restarts: int = 0
    num_rows: int = 0
    num_batches: int = 0
    num_steps: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    meter: Meter = field(default_factory=Meter)
    steps: StepAdder = field(default_factory=StepAdder)
    facts: EngineFacts | None = None
    tail: Tail = field(default_factory=Tail)

    def start(self, since_s: float) -> None:
        """Note since when an engine is held (monotonic); the earliest one starts the clock."""
        self.started_s = since_s if self.started_s is None else min(self.started_s, since_s)

    def ready(self, facts: EngineFacts) -> None:
        """Note what the engine is."""
        self.facts = facts
        self.num_devices = self.meter.num_devices = facts.num_devices
        self.meter.roofline = facts.roofline

    def add(self, step: StepStats) -> None:
        """Note an engine step."""
        if self.meter.add(step):
            self.tail.add(step)
            self.steps.add(step)

    def tick(self) -> None:
        """Bring `wall_s` up to now."""
        if self.started_s is not None:
            self.wall_s = time.monotonic() - self.started_s

    @property
    def generate_s(self) -> float:
        """Wall seconds in which an engine was ready."""
        return max(0.0, self.wall_s - self.load_s)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens done, cached ones too."""
        done = self.meter.all
        return done.num_prefill_tokens + done.num_decode_tokens + self.num_cached_tokens

    @property
    def idle_s(self) -> float:
        """Wall seconds in which an engine was ready, made no step, and could have."""
        return self._not_busy_s - self.tail_idle_s

    @property
    def tail_idle_s(self) -> float:
        """Wall seconds without a step after the last request had gone into the engine.

        The last commits and the engine's end are in it.
        """
        if self.started_s is None:
            return 0.0
        return min(self.tail.idle_s(self.started_s + self.wall_s), max(0.0, self._not_busy_s))

    @property
    def device_s(self) -> float:
        """Device-seconds held."""
        return self.wall_s * self.num_devices

    @property
    def fraction_of_limit(self) -> float | None:
        """What the device at its limit would have needed, of the time an engine was ready.

        Idle counts against it, load does not. None where a limit is not known.
        """
        held_s = self.generate_s * self.num_devices
        limit_s = self.meter.all.limit_s
        return limit_s / held_s if limit_s is not None and held_s > 0 else None

    def usd(self, usd_per_device_hour: float) -> float:
        """Return the price of the device-seconds held."""
        return self.device_s / 3600 * usd_per_device_hour

    def so_far(self, usd_per_device_hour: float) -> AttemptUse | None:
        """Return what was used up to the last tick; None before any engine was started."""
        if self.started_s is None:
            return None
        return AttemptUse(
            num_devices=self.num_devices,
            usd_per_device_hour=usd_per_device_hour,
            wall_s=self.wall_s,
            load_s=self.load_s,
            busy_s=self.meter.busy_s,
            idle_s=self.idle_s,
            tail_idle_s=self.tail_idle_s,
        )

    @property
    def _not_busy_s(self) -> float:
        return self.wall_s - self.load_s - self.meter.busy_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How generation goes: what was spent so far, and what the last poll brought."""

    spent: Spent
    poll: Poll
