"""What settings are chosen from, and the choices that are alike on every device."""

from dataclasses import dataclass
from typing import TypeVar

from pipelines.engines import balance
from pipelines.engines.model_size import ModelSize
from pipelines.engines.settings import Chosen, EngineDevice
from schemas.device_limits import DeviceLimits
from schemas.engine_overrides import EngineOverrides
from schemas.engine_records import EngineStart
from schemas.tunings import Trial, Tuning
from schemas.workloads import Workload

T = TypeVar("T")

JOB_FILE = "job file"

_MIN_MODEL_LEN = 512
_GRAIN = 16
"""What is compiled is good for one number of sequences: partitions a little different share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known beyond device and model; None for what is not.

    `forecast_s` are seconds of eager engine steps; `tuning` and `starts` are from this device
    with these weights.
    """

    workload: Workload | None = None
    forecast_s: float | None = None
    limits: DeviceLimits | None = None
    tuning: Tuning | None = None
    starts: tuple[EngineStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """All that a choice rests on. `context_length` bounds prompt + output of a request."""

    device: EngineDevice
    model: ModelSize
    context_length: int
    wanted: EngineOverrides
    known: Evidence
    compile: Chosen[bool]

    def or_job(self, wanted: T | None, chosen: Chosen[T]) -> Chosen[T]:
        """Return what the job file says, else what was chosen."""
        return chosen if wanted is None else Chosen(value=wanted, reason=JOB_FILE)

    def _trial(self) -> Trial | None:
        """Return the best trial of the tuning in the mode that is chosen, or in the other one."""
        tuning = self.known.tuning
        if tuning is None:
            return None
        return tuning.best(is_compiled=self.compile.value) or tuning.fastest

    def num_seqs(self, batched: int, bounds: tuple[int, int], unknown: int) -> Chosen[int]:
        """Return how many sequences a step of `batched` tokens holds, within `bounds`.

        `unknown` are those where the plan's lengths are not known.
        """
        if self.wanted.max_num_seqs is not None:
            return Chosen(value=self.wanted.max_num_seqs, reason=JOB_FILE)
        trial, workload = self._trial(), self.known.workload
        if trial is not None and self.known.tuning and not self.known.tuning.is_full(trial):
            return Chosen(value=trial.max_num_seqs, reason=_tuned(self.known.tuning, trial))
        low, high = bounds
        if workload is None:
            return Chosen(value=unknown, reason="lengths are not known yet")
        balanced = balance.balanced_num_seqs(batched, workload)
        formula = (
            f"{batched:,} tokens a step x {workload.mean_output_tokens:,.0f} output / "
            f"({workload.mean_uncached_tokens:,.0f} uncached + {workload.mean_output_tokens:,.0f} "
            f"output) keeps prefill and decode in balance at {balanced:,}"
        )
        value = min(high, max(low, _coarse(balanced)))
        rounded = "" if value == balanced else f"; in steps of {_GRAIN} within {low:,} to {high:,}"
        return Chosen(value=value, reason=formula + rounded)

    def batched_tokens(self, chosen: Chosen[int], num_seqs: int) -> Chosen[int]:
        """Return the tokens of a step: tuned or `chosen`, with room for all sequences to decode."""
        trial = self._trial()
        if trial is not None and self.known.tuning is not None:
            reason = _tuned(self.known.tuning, trial)
            chosen = Chosen(value=trial.max_num_batched_tokens, reason=reason)
        chosen = self.or_job(self.wanted.max_num_batched_tokens, chosen)
        if chosen.value >= num_seqs:
            return chosen
        reason = f"one token for each of the {num_seqs:,} sequences at the least"
        return Chosen(value=num_seqs, reason=reason)

    def max_model_len(self) -> Chosen[int]:
        """Return room for the longest request, rounded so that the next partition fits as well."""
        workload, context = self.known.workload, self.context_length
        longest = None if workload is None else workload.longest_tokens
        if longest is None:
            return Chosen(value=context, reason="the model's context: lengths are not known yet")
        rounded = max(_MIN_MODEL_LEN, balance.power_of_two_from(longest))
        reason = f"the longest prompt + output is {longest:,} tokens"
        if rounded >= context:
            return Chosen(value=context, reason=f"the model's context; {reason}")
        return Chosen(value=rounded, reason=f"{reason}, rounded up: one engine for many partitions")

    def kv_cache_bytes(self) -> int | None:
        """Return the bytes for keys and values that the job file asks for."""
        gigabytes = self.wanted.kv_cache_gb
        return None if gigabytes is None else round(gigabytes * 1e9)


def _coarse(num_seqs: int) -> int:
    return round(num_seqs / _GRAIN) * _GRAIN


def _tuned(tuning: Tuning, trial: Trial) -> str:
    mode = "compiled" if trial.is_compiled else "eager"
    return (
        f"tuned on {tuning.tuned_at[:10]}: {trial.tokens_per_s:,.0f} tokens/s {mode}, the best of "
        f"{len(tuning.trials)} with {tuning.num_requests} requests of {tuning.job_name}"
    )
