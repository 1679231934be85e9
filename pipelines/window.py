"""How much may be in an engine at once: its queue never empty, its KV cache never too small."""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

from schemas.requests import EngineFacts

_WINDOW_FACTOR = 2
_MAX_WINDOW_FACTOR = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Bounds of what is in an engine: requests, and the KV cache of those that run.

    At most `num_running` requests run at a time (None: all of them) and hold KV blocks of
    `block_size` tokens; the others wait and hold none. `num_tokens` is the KV capacity, None
    for no bound.
    """

    num_requests: int
    num_tokens: int | None
    num_running: int | None = None
    block_size: int = 1

    @staticmethod
    def of(facts: EngineFacts) -> "Window":
        """Return a window of about twice what the engine runs at once."""
        block_size = int(facts.settings.get("block_size") or 1)
        capacity = facts.kv_capacity_tokens
        return Window(
            num_requests=_WINDOW_FACTOR * facts.max_num_seqs,
            num_tokens=None if capacity is None else capacity - block_size,
            num_running=facts.max_num_seqs,
            block_size=block_size,
        )

    def grown(self, facts: EngineFacts) -> "Window":
        """Return a window of twice as many requests, for an engine whose queue ran dry.

        Up to `_MAX_WINDOW_FACTOR` times what the engine runs at once.
        """
        most = _MAX_WINDOW_FACTOR * facts.max_num_seqs
        return replace(self, num_requests=min(2 * self.num_requests, most))


class Held:
    """The KV tokens that the requests in an engine may come to hold, each its own number."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._size_of: dict[int, int] = {}
        self._sizes: list[int] = []

    def add(self, number: int, num_tokens: int) -> None:
        """Count a request that goes into the engine."""
        self._size_of[number] = num_tokens
        insort(self._sizes, num_tokens)

    def remove(self, number: int) -> None:
        """Count a request no more that has left it."""
        del self._sizes[bisect_left(self._sizes, self._size_of.pop(number))]

    def has_room(self, num_tokens: int, window: Window) -> bool:
        """Return whether a further request of so many tokens could never make another wait.

        Whichever requests run, they hold no more than the largest `num_running` of all. An
        empty engine takes any request.
        """
        if window.num_tokens is None or not self._sizes:
            return True
        most = len(self._sizes) + 1 if window.num_running is None else window.num_running
        most = min(most, len(self._sizes) + 1)
        capacity = window.num_tokens // window.block_size
        one = _num_blocks(num_tokens, window)
        if max(one, _num_blocks(self._sizes[-1], window)) * most <= capacity:
            return True
        others = self._sizes[len(self._sizes) - (most - 1) :]
        if most <= len(self._sizes):
            next_size = self._sizes[len(self._sizes) - most]
            one = max(one, _num_blocks(next_size, window))
        return one + sum(_num_blocks(size, window) for size in others) <= capacity


def _num_blocks(num_tokens: int, window: Window) -> int:
    return -(-num_tokens // window.block_size)
