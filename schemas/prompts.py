"""A prompt as ingest hands it on: one row of the input, ready to be tokenized, or a reject."""

from collections.abc import Callable
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


Shorten = Callable[[int], tuple[Conversation, ...]]
"""Gives a row's conversations with its longest value cut to so many characters."""


class Prompt(NamedTuple):
    """One row of the input: its conversations, or the fault that keeps it from having any.

    A tuple, for a run makes millions: a frozen dataclass takes three times as long to make.

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
    shorten: Shorten | None = None
