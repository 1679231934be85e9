"""How a run goes, as numbers for whoever shows them: a terminal, a log, Dagster."""

import time
from collections.abc import Callable, Collection

from pipelines.accounting import Telling
from pipelines.pace import Pace
from schemas.forecasts import Forecast
from schemas.plans import Plan
from schemas.runs import Progress

_INTERVAL_S = 0.5


class ProgressMeter:
    """Turns what the steps tell into `Progress`, at most twice a second."""

    def __init__(self, show: Callable[[Progress], None], usd_per_device_hour: float) -> None:
        """Hand progress on to `show`."""
        self._show = show
        self._price = usd_per_device_hour
        self._num_planned = 0
        self._planning_s = 0.0
        self._num_rows_total = 0
        self._num_batches_total = 0
        self._num_rows_reused = 0
        self._num_batches_reused = 0
        self._pace = Pace.of((), None)
        self._ttft: list[float] = []
        self._tpot: list[float] = []
        self._next_s = 0.0

    def planning(self, num_rows: int, num_rows_total: int | None = None) -> None:
        """Note that so many more rows were planned, of so many by the files' footers."""
        now = time.monotonic()
        self._planning_s = now if self._num_planned == 0 else self._planning_s
        self._num_planned += num_rows
        if not self._is_due():
            return
        seconds = now - self._planning_s
        rate = self._num_planned / seconds if seconds > 0 else None
        left = None if num_rows_total is None else max(0, num_rows_total - self._num_planned)
        self._show(
            Progress(
                phase="plan",
                num_rows=self._num_planned,
                num_rows_total=num_rows_total,
                rows_per_s=rate,
                eta_s=left / rate if rate and left is not None else None,
            )
        )

    def planned(self, plan: Plan, reused: Collection[str], forecast: Forecast | None) -> None:
        """Note the plan, which of its batches are done already, and what the rest may take."""
        done = [batch for batch in plan.batches if batch.batch_id in reused]
        pending = [batch for batch in plan.batches if batch.batch_id not in reused]
        self._num_rows_total = plan.num_rows
        self._num_batches_total = len(plan.batches)
        self._num_rows_reused = sum(batch.num_rows for batch in done)
        self._num_batches_reused = len(done)
        self._pace = Pace.of(pending, forecast)
        self._show(
            Progress(
                phase="load",
                num_rows=self._num_rows_reused,
                num_rows_total=plan.num_rows,
                num_batches=len(done),
                num_batches_total=len(plan.batches),
                eta_s=forecast.seconds if forecast else None,
            )
        )

    def generating(self, telling: Telling) -> None:
        """Note steps and answers."""
        spent, poll = telling.spent, telling.poll
        self._ttft = [*self._ttft, *(a.ttft_s for a in poll.answers if a.ttft_s is not None)][-256:]
        self._tpot = [*self._tpot, *(a.tpot_s for a in poll.answers if a.tpot_s is not None)][-256:]
        if not self._is_due():
            return
        seconds = spent.generate_s
        total = spent.num_tokens
        rate = total / seconds if seconds > 0 and total else None
        last = poll.steps[-1] if poll.steps else None
        self._show(
            Progress(
                phase="generate",
                num_rows=self._num_rows_reused + spent.num_rows,
                num_rows_total=self._num_rows_total,
                num_batches=self._num_batches_reused + spent.num_batches,
                num_batches_total=self._num_batches_total,
                num_output_tokens=spent.meter.all.num_decode_tokens,
                tokens_per_s=rate,
                ttft_s=_median(self._ttft),
                tpot_s=_median(self._tpot),
                memory_bytes=spent.facts.memory_bytes if spent.facts else None,
                kv_usage_fraction=last.kv_usage_fraction if last else None,
                num_running=last.num_running if last else 0,
                usd=spent.usd(self._price),
                eta_s=self._pace.left_s(spent),
            )
        )

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + _INTERVAL_S
        return True


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
