"""Pace: how long the tokens that are left will take, as forecast at first and as measured later."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.accounting import Spent
from schemas.forecasts import Forecast
from schemas.plans import PlannedBatch

FORECAST_SHARE = 0.1
"""The forecast weighs as much as measuring this share of all tokens: half, when that is done."""
_MIN_MEASURED_TOKENS = 1024
"""Without a forecast nothing is told by fewer: the first steps are prefill alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds per token, prompt and output alike, of these pending batches.

    With n tokens forecast at e seconds each, and m of them done in t seconds, a token takes
    (t + k x e) / (m + k) seconds, where k is a tenth of n. `output_ratio` is expected output
    tokens over those that the plan predicts.
    """

    num_tokens: float
    expected_s_per_token: float | None
    output_ratio: float

    @staticmethod
    def of(pending: Sequence[PlannedBatch], forecast: Forecast | None) -> "Pace":
        """Return the pace that this forecast expects."""
        predicted = sum(batch.predicted_output_tokens for batch in pending)
        ratio = 1.0
        if forecast is not None and forecast.output_tokens is not None and predicted:
            ratio = forecast.output_tokens / predicted
        num_tokens = sum(batch.num_prompt_tokens for batch in pending) + predicted * ratio
        expected: float | None = None
        if forecast is not None and forecast.seconds is not None and num_tokens:
            expected = (forecast.seconds - (forecast.load_s or 0.0)) / num_tokens
        return Pace(num_tokens=num_tokens, expected_s_per_token=expected, output_ratio=ratio)

    def tokens_of(self, batch: PlannedBatch) -> float:
        """Return the prompt and output tokens that this batch is expected to have."""
        return batch.num_prompt_tokens + batch.predicted_output_tokens * self.output_ratio

    def s_per_token(self, spent: Spent) -> float | None:
        """Return seconds per token by now; None where nothing is known yet."""
        done, seconds = spent.num_tokens, spent.generate_s
        if self.expected_s_per_token is None:
            return seconds / done if done >= _MIN_MEASURED_TOKENS else None
        prior = self.num_tokens * FORECAST_SHARE
        return (seconds + prior * self.expected_s_per_token) / (done + prior)

    def left_s(self, spent: Spent) -> float | None:
        """Return the seconds that the rest of all batches will take; None where not known."""
        s_per_token = self.s_per_token(spent)
        if s_per_token is None:
            return None
        return max(0.0, self.num_tokens - spent.num_tokens) * s_per_token
