"""What every engine promises to the step that feeds it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from schemas.requests import EngineFacts, EngineRequest, Poll


class Engine(Protocol):
    """Answers requests: fed by `submit`, emptied by `poll`, ended by `close`.

    One thread uses an engine. Each request submitted is answered once, in any order: with
    tokens, or with an `error` that concerns this request alone. After EngineDiedError the
    engine answers nothing more; what it had not returned from `poll` counts as not done.
    """

    @property
    def facts(self) -> EngineFacts:
        """What the engine is; waits until it is ready.

        Raises:
            SettingsError: it cannot start with these settings; another start fails alike.
            EngineDiedError: it died, or was not ready in time.
        """
        ...

    @property
    def held_since_s(self) -> float:
        """Since when the device is held for whoever uses this engine (monotonic seconds).

        The start of its process; of one that was used before, the end of that use.
        """
        ...

    def submit(self, requests: Sequence[EngineRequest]) -> None:
        """Hand over requests; returns at once, also before the engine is ready.

        Raises:
            EngineDiedError: the engine is dead; none of these requests will be answered.
        """
        ...

    def poll(self, timeout_s: float) -> Poll:
        """Return all answers and steps since the last poll; waits until there is one of them.

        Empty after `timeout_s` seconds without either. What had arrived before a death is
        returned first; the death is raised by the next call.

        Raises:
            SettingsError: it cannot start with these settings.
            EngineDiedError: it died, or made no progress for too long while requests waited
                (then `is_stall` is set, and it has been killed).
        """
        ...

    def reset(self) -> None:
        """Drop every request that is not answered, and steps not polled; numbers begin anew."""
        ...

    def close(self) -> None:
        """End the engine and everything it started; may be called again, and never raises."""
        ...

    def __enter__(self) -> Self:
        """Return the engine; it is closed when the block ends."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the engine."""
        ...
