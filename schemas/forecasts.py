"""A forecast: what the pending batches of a run are expected to take, before an engine starts."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Seconds, USD and output tokens of one attempt, expected; None where nothing is known.

    `seconds` are those in which devices are held, as in the attempt's bill: from the engine's
    start (`load_s`) over its steps (`busy_s`) and what is idle between and after them to its
    end. Planning is not in them: it is done when the forecast is made. `low_…` to `high_…` is
    an interval in which nine of ten outcomes are expected to lie, where the basis is an earlier
    run; without one it is as wide as the guess. `basis` says from what, or why there is none,
    `warning` that a limit of the job will end the run before its end.
    """

    basis: str
    is_from_history: bool = False
    num_devices: int = 1
    seconds: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    load_s: float | None = None
    busy_s: float | None = None
    usd: float | None = None
    low_usd: float | None = None
    high_usd: float | None = None
    output_tokens: int | None = None
    warning: str | None = None

    def without_load(self) -> "Forecast":
        """Return what is to be expected of an engine that has been loaded already."""
        if self.seconds is None or self.low_s is None or self.high_s is None or not self.load_s:
            return self
        left = 1 - self.load_s / self.seconds
        return replace(
            self,
            load_s=0.0,
            seconds=self.seconds * left,
            low_s=self.low_s * left,
            high_s=self.high_s * left,
            usd=None if self.usd is None else self.usd * left,
            low_usd=None if self.low_usd is None else self.low_usd * left,
            high_usd=None if self.high_usd is None else self.high_usd * left,
        )


def error_fraction(came: float, expected: float | None) -> float | None:
    """Return by what share of the expected value the real one is off: 0.1 is a tenth more.

    None where nothing was expected, or nothing was to be done.
    """
    return came / expected - 1 if expected else None
