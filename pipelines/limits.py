"""Limits: no more is begun than fits into the money and the time that are left.

Two lines, both drawn before a limit is passed. A batch is not begun if what is in the engine
and it would take longer than there is left; what was begun goes on, and is committed. Should
that take longer than expected, everything stops while there is still time to end the engine.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from pipelines.accounting import Spent
from pipelines.pace import Pace
from schemas.errors import StoppedByLimitError
from schemas.forecasts import Forecast
from schemas.plans import Plan, PlannedBatch

SAFETY = 1.1
"""The open batches may take this much longer than expected and still be finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may take; None for no bound.

    The money is that of all attempts of the run: `earlier_usd` is what those before have
    spent. The deadline counts from `started_s` (monotonic), when this attempt was asked for:
    planning and loading are part of it.
    """

    started_s: float
    usd_per_device_hour: float = 0.0
    max_usd: float | None = None
    deadline_s: float | None = None
    earlier_usd: float = 0.0

    def left_s(self, spent: Spent, now_s: float) -> float:
        """Return the seconds until the first limit is passed, devices held all the while."""
        left_s = math.inf
        if self.deadline_s is not None:
            left_s = self.started_s + self.deadline_s - now_s
        usd_per_s = self.usd_per_s(spent)
        if self.max_usd is not None and (usd_per_s > 0 or self.earlier_usd >= self.max_usd):
            usd = self.max_usd - self._usd(spent, now_s)
            left_s = min(left_s, usd / usd_per_s if usd_per_s > 0 else 0.0)
        return left_s

    def usd_per_s(self, spent: Spent) -> float:
        """Return the price of a second in which all devices are held."""
        return self.usd_per_device_hour * spent.num_devices / 3600

    def check(self, spent: Spent, now_s: float, *, reserve_s: float = 0.0) -> None:
        """Return while more than `reserve_s` seconds are left.

        Raises:
            StoppedByLimitError: there are not; finished batches are committed, a re-run resumes.
        """
        if self.left_s(spent, now_s) <= reserve_s:
            raise StoppedByLimitError(self.said(spent, now_s))

    def said(self, spent: Spent, now_s: float) -> str:
        """Return how much of the limits is used, such as `limits.max_usd: 1.2 of 1.3 USD`."""
        told: list[str] = []
        if self.max_usd is not None:
            usd = self._usd(spent, now_s)
            told.append(f"limits.max_usd: {usd:.4g} of {self.max_usd:.4g} USD are spent")
        if self.deadline_s is not None:
            passed_s = now_s - self.started_s
            told.append(f"limits.deadline: {passed_s:.0f} of {self.deadline_s:.0f} s have passed")
        return ", ".join(told)

    def warned(self, forecast: Forecast, now_s: float) -> Forecast:
        """Return the forecast, with a warning where even its low end passes a limit."""
        told: list[str] = []
        if self.max_usd is not None and forecast.low_usd is not None:
            usd = self.earlier_usd + forecast.low_usd
            if usd > self.max_usd:
                told.append(f"{usd:.4g} USD, limits.max_usd is {self.max_usd:.4g}")
        if self.deadline_s is not None and forecast.low_s is not None:
            total_s = now_s - self.started_s + forecast.low_s
            if total_s > self.deadline_s:
                told.append(f"{total_s:.0f} s, limits.deadline is {self.deadline_s:.0f} s")
        if not told:
            return forecast
        warning = f"at least {' and '.join(told)}: the run will stop before its end"
        return replace(forecast, warning=warning)

    def _usd(self, spent: Spent, now_s: float) -> float:
        held_s = 0.0 if spent.started_s is None else now_s - spent.started_s
        return self.earlier_usd + held_s * self.usd_per_s(spent)


class Gate:
    """Says which batches may still be begun, and how long an attempt may still wait."""

    def __init__(self, budget: Budget, pace: Pace, load_s: float | None, spent: Spent) -> None:
        """Guard this budget; `load_s` is how long the first engine is expected to load."""
        self._budget = budget
        self._pace = pace
        self._load_s = load_s
        self._spent = spent
        self._begun_tokens = 0.0
        self._longest_commit_s = 0.0

    @property
    def usd_per_device_hour(self) -> float:
        """The price that counts."""
        return self._budget.usd_per_device_hour

    def committed(self, seconds: float) -> None:
        """Note how long a commit took."""
        self._longest_commit_s = max(self._longest_commit_s, seconds)

    def begun(self, batch: PlannedBatch) -> None:
        """Note that the requests of this batch go into the engine."""
        self._begun_tokens += self._pace.tokens_of(batch)

    def may_begin(self, batch: PlannedBatch, now_s: float) -> bool:
        """Return whether what is in the engine and this batch would be finished in time.

        Where no pace is known yet, it may begin.
        """
        left_s = self._budget.left_s(self._spent, now_s) - self.reserve_s
        s_per_token = self._pace.s_per_token(self._spent)
        if s_per_token is None or left_s == math.inf:
            return left_s > 0
        load_s = (self._load_s or 0.0) if self._spent.facts is None else 0.0
        tokens = max(0.0, self._begun_tokens - self._spent.num_tokens)
        needed_s = (tokens + self._pace.tokens_of(batch)) * s_per_token + self._tail_s(batch)
        return load_s + needed_s * SAFETY <= left_s

    def check(self, now_s: float) -> None:
        """Return while there is time for more than ending the engine and the last commits.

        Raises:
            StoppedByLimitError: there is not.
        """
        self._budget.check(self._spent, now_s, reserve_s=self.reserve_s)

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds that are left for work; None without a limit."""
        left_s = self._budget.left_s(self._spent, now_s) - self.reserve_s
        return None if left_s == math.inf else max(0.0, left_s)

    def waits_s(self, now_s: float, most_s: float) -> float:
        """Return how long a poll may wait: `most_s`, less where a limit is near."""
        left_s = self._budget.left_s(self._spent, now_s) - self.reserve_s
        return max(0.001, min(most_s, left_s))

    def said(self, now_s: float) -> str:
        """Return that no further batch was begun, and why."""
        return f"{self._budget.said(self._spent, now_s)}, and no further batch would be finished"

    def rest(self, plan: Plan, done: Collection[str]) -> str:
        """Return what of the plan is committed, and what the rest is expected to need."""
        left = [batch for batch in plan.batches if batch.batch_id not in done]
        num_batches, num_rows = len(plan.batches), plan.num_rows
        committed = (
            f"{num_batches - len(left):,} of {num_batches:,} batches "
            f"({num_rows - sum(batch.num_rows for batch in left):,} of {num_rows:,} rows) "
            "are committed; the same command does the rest"
        )
        s_per_token = self._pace.s_per_token(self._spent)
        if s_per_token is None:
            return committed
        needed_s = self._spent.load_s or self._load_s or 0.0
        needed_s += sum(map(self._pace.tokens_of, left)) * s_per_token
        usd = needed_s * self._budget.usd_per_s(self._spent)
        needed = f"about {needed_s:,.1f} s and {usd:.4g} USD"
        if self._budget.max_usd is None:
            return f"{committed} in {needed}"
        total = self._budget.earlier_usd + self._spent.usd(self._budget.usd_per_device_hour) + usd
        return f"{committed} in {needed}, with limits.max_usd of {total:.4g} for all attempts"

    @property
    def reserve_s(self) -> float:
        """Seconds kept for the engine's end, and for a commit."""
        facts = self._spent.facts
        return (0.0 if facts is None else facts.close_s) + self._longest_commit_s

    def _tail_s(self, batch: PlannedBatch) -> float:
        """Return what a last request alone takes: its output tokens, an engine step each."""
        steps = self._spent.num_steps
        if not steps or not batch.num_requests:
            return 0.0
        per_request = batch.predicted_output_tokens * self._pace.output_ratio / batch.num_requests
        return per_request * self._spent.meter.busy_s / steps
