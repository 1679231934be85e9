"""What can be used in a `with` block, at whose end it is closed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosedByBlock(ABC):
    """Has a `close` that may be called again; a `with` block calls it, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """End what this is, and everything it started."""

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close this."""
        self.close()
