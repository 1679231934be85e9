"""A prompt as ingest hands it on: one row of the input, ready to be tokenized, or a reject."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from schemas.rejects import RejectCode


class Message(NamedTuple):
    """One turn of a conversation: who speaks, and the text, literally."""

    role: str
    content: str


Conversation = tuple[Message, ...]
"""Messages in the order in which they were said; the model says the next one."""


class Fault(NamedTuple):
    """Why a row cannot be a request: a stable code and a message that never quotes the row."""

    code: RejectCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One row of the input: its conversations, or the fault that keeps it from having any.

    There is one conversation, or one for each of the job's questions, in their order.
    `shorten(n)` gives them with the row's longest value cut to its first n characters; None
    where the job does not allow to cut.
    """

    row_key: str
    file_number: int
    row: int
    conversations: tuple[Conversation, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    fault: Fault | None = None
    shorten: Callable[[int], tuple[Conversation, ...]] | None = None
