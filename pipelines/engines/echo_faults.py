"""What can go wrong in an echo engine."""

from dataclasses import dataclass
from typing import Literal

from schemas.requests import EngineRequest

Fate = Literal["lives", "dies", "hangs"]
"""What the engine does when it comes to a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoFaults:
    """What goes wrong, by the order in which requests come or by what is in a prompt.

    Numbers count requests from 1 within one engine. `poison` is a run of tokens: a prompt
    that holds it kills the engine when it is its turn; `hang` makes it stall there instead.
    """

    dies_at: int | None = None
    poison: tuple[int, ...] = ()
    hang: tuple[int, ...] = ()
    answers_twice_at: int | None = None
    answers_unknown_at: int | None = None
    drops_at: int | None = None
    dies_at_start: bool = False

    def fate(self, request: EngineRequest, place: int) -> Fate:
        """Return what the engine does when it comes to this request."""
        if place == self.dies_at or _holds(request, self.poison):
            return "dies"
        return "hangs" if _holds(request, self.hang) else "lives"


def _holds(request: EngineRequest, marker: tuple[int, ...]) -> bool:
    tokens, size = request.prompt_token_ids, len(marker)
    return size > 0 and any(
        tokens[start : start + size] == marker for start in range(len(tokens) - size + 1)
    )
