"""The errors a caller can react to: one class per reaction, not per cause.

Each class knows the exit code its command ends with (README, "Exit codes").
"""

from typing import ClassVar


class PromptmillError(Exception):
    """Base of every error that promptmill raises on purpose."""

    exit_code: ClassVar[int] = 70


class SettingsError(PromptmillError):
    """The job file, an argument or the input does not fit: change it and call again.

    Nothing has been written.
    """

    exit_code: ClassVar[int] = 2


class VerificationError(PromptmillError):
    """What lies on storage is not what was committed; the message names every fault."""

    exit_code: ClassVar[int] = 1


class TooManyRejectsError(PromptmillError):
    """The run is complete, and more rows were rejected than the job file allows."""

    exit_code: ClassVar[int] = 3


class StoppedByLimitError(PromptmillError):
    """The budget or the deadline was reached; what was finished is committed, a re-run resumes."""

    exit_code: ClassVar[int] = 4


class TryElsewhereError(PromptmillError):
    """This machine, engine or store does not work now; a re-run elsewhere resumes."""

    exit_code: ClassVar[int] = 75


class StorageError(TryElsewhereError):
    """A storage call kept failing until its deadline; whether it took effect is not known."""


class EngineDiedError(TryElsewhereError):
    """The engine process ended or stopped answering; nothing it had not returned is trusted."""

    def __init__(self, message: str, *, is_stall: bool = False) -> None:
        """Say how it died; `is_stall`: it lived, and made no progress."""
        super().__init__(message)
        self.is_stall = is_stall


class ContractError(PromptmillError):
    """A promise between two parts of promptmill is broken: a bug, never the input's fault."""
