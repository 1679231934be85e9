"""What the engine steps of an attempt had in them and took, added up so that it can be fitted."""

from dataclasses import dataclass

FEATURES = ("one", "forward tokens", "sampled tokens", "query-key pairs")
"""What a step's seconds are explained by; `one` is what every step takes."""
_SIZE = len(FEATURES) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """Sums over engine steps of x_i * x_j, where x are the features and the step's seconds.

    Rows of the symmetric matrix one after the other, `len(FEATURES) + 1` squared numbers. Sums
    of several attempts add up to those of all of their steps.
    """

    products: tuple[float, ...] = (0.0,) * _SIZE**2

    def __post_init__(self) -> None:
        """Refuse sums of other features."""
        if len(self.products) != _SIZE**2:
            raise ValueError(f"{len(self.products)} products, not {_SIZE**2}")

    def row(self, place: int) -> tuple[float, ...]:
        """Return the sums of feature `place` times each feature and the seconds."""
        return self.products[place * _SIZE : (place + 1) * _SIZE]

    @property
    def num_steps(self) -> float:
        """Engine steps that were added up."""
        return self.products[0]

    @property
    def sampled_per_step(self) -> float:
        """Output tokens of a step in the mean; 0 without steps."""
        return self.row(0)[2] / self.num_steps if self.num_steps else 0.0

    def plus(self, other: "StepSums") -> "StepSums":
        """Return the sums of the steps of both."""
        both = zip(self.products, other.products, strict=True)
        return StepSums(products=tuple(one + two for one, two in both))
