"""A prompt as ingest hands it on: one row of the input, ready to be tokenized, or a reject."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from schemas.rejects import RejectCode


class Message(NamedTuple):
    """One turn of a conversation: who speaks, and the text, literally."""

    role: str
    content: str


class Fault(NamedTuple):
    """Why a row cannot be a request: a stable code and a message that never quotes the row."""

    code: RejectCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One row of the input: a conversation, or the fault that keeps it from being one.

    `shorten(n)` gives the conversation with the row's longest value cut to its first n
    characters; None where the job does not allow to cut.
    """

    row_key: str
    file_number: int
    row: int
    messages: tuple[Message, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    fault: Fault | None = None
    shorten: Callable[[int], tuple[Message, ...]] | None = None
