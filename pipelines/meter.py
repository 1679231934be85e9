"""Who pays for what: every engine step is shared among the batches that were in it.

By the work each did (`roofline.step_weights`), so the sum over batches is the sum of the
steps, always; energy likewise.
"""

from dataclasses import dataclass, field

from pipelines.roofline import Bound, step_limit_s, step_weights
from schemas.model_shape import Roofline
from schemas.requests import StepStats


@dataclass(slots=True)
class Use:
    """What the engine did so far, for one batch or for all.

    `device_s` are device-seconds of steps, `limit_s` the least that they could have taken, of
    which `bandwidth_limit_s` in steps bound by bandwidth. None: not known.
    """

    device_s: float = 0.0
    limit_s: float | None = None
    bandwidth_limit_s: float = 0.0
    energy_j: float | None = None
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    num_forward_tokens: int = 0
    num_query_key_pairs: int = 0
    num_preemptions: int = 0
    kv_peak_fraction: float | None = None

    @property
    def bound_by(self) -> Bound | None:
        """What most of the limit comes from; None where it is not known."""
        if self.limit_s is None:
            return None
        return "bandwidth" if self.bandwidth_limit_s * 2 > self.limit_s else "compute"


@dataclass(slots=True)
class Meter:
    """Adds up engine steps: per batch (`uses`, by group), and over all."""

    num_devices: int = 1
    busy_s: float = 0.0
    roofline: Roofline | None = None
    all: Use = field(default_factory=Use)
    uses: dict[int, Use] = field(default_factory=dict)

    def add(self, step: StepStats) -> bool:
        """Share this step among the groups in it; return whether it had work.

        The time of a step without work is nobody's: it counts as idle.
        """
        for work in step.work:
            for use in (self._of(work.group), self.all):
                use.num_preemptions += work.num_preemptions
        weights = step_weights(step.work, self.roofline)
        total = sum(weights)
        if total <= 0:
            return False
        self.busy_s += step.duration_s
        limit = None if self.roofline is None else step_limit_s(step.work, self.roofline)
        for work, weight in zip(step.work, weights, strict=True):
            for use in (self._of(work.group), self.all):
                self._share(use, step, limit, weight / total)
                use.num_prefill_tokens += work.num_prefill_tokens
                use.num_decode_tokens += work.num_decode_tokens
                use.num_forward_tokens += work.num_forward_tokens
                use.num_query_key_pairs += work.num_query_key_pairs
        return True

    def _share(
        self, use: Use, step: StepStats, limit: tuple[float, Bound] | None, part: float
    ) -> None:
        use.device_s += step.duration_s * self.num_devices * part
        use.kv_peak_fraction = max(use.kv_peak_fraction or 0.0, step.kv_usage_fraction)
        if limit is not None:
            use.limit_s = (use.limit_s or 0.0) + limit[0] * part
            use.bandwidth_limit_s += limit[0] * part if limit[1] == "bandwidth" else 0.0
        if step.energy_j is not None:
            use.energy_j = (use.energy_j or 0.0) + step.energy_j * part

    def use(self, group: int) -> Use:
        """Return what the engine did for this group; nothing yet is a zero bill."""
        return self.uses.get(group, Use())

    def device_s(self, group: int) -> float:
        """Return the device-seconds of this group so far."""
        return self.use(group).device_s

    def _of(self, group: int) -> Use:
        return self.uses.setdefault(group, Use())


@dataclass(slots=True)
class Tail:
    """The time after the last request has gone into the engine.

    Should the engine die then, its requests go in again, and the tail begins anew: what
    passed is ordinary time. Instants are `time.monotonic()`, which on Linux is one clock for
    the engine's process and ours.
    """

    began_s: float | None = None
    busy_s: float = 0.0

    def note(self, now_s: float, *, is_dry: bool) -> None:
        """Note whether there is nothing more that could enter the engine."""
        if not is_dry:
            self.began_s, self.busy_s = None, 0.0
        elif self.began_s is None:
            self.began_s = now_s

    def add(self, step: StepStats) -> None:
        """Note an engine step; what of it lies before the tail is not counted."""
        if self.began_s is not None:
            ended_s = step.started_s + step.duration_s
            self.busy_s += max(0.0, ended_s - max(step.started_s, self.began_s))

    def idle_s(self, ended_s: float) -> float:
        """Return the seconds without a step between the tail's begin and `ended_s`."""
        return 0.0 if self.began_s is None else max(0.0, ended_s - self.began_s - self.busy_s)
