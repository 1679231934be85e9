"""Tokenizing beside reading: prompts become plan rows, a chunk at a time.

While one chunk is tokenized on all cores, the next is read and rendered.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from pipelines.chat import ChatTokenizer, TemplateRefusedError
from pipelines.planned_rows import TokenizedPrompts, rows_of
from schemas.prompts import Conversation, Fault, Prompt

CHUNK_ROWS = 1024
_NUM_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a request may take, in tokens: `max_model_len` holds prompt and output.

    `num_answer_tokens` is None where the job's or the row's max_tokens bounds the output;
    labels take a fixed number of tokens instead. `question_tokens` is what each of the job's
    questions may take, empty for a job without.
    """

    max_model_len: int
    max_tokens: int
    num_answer_tokens: int | None
    question_tokens: tuple[int, ...] = ()

    def output_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the most output tokens that each of this row's prompts may take."""
        if self.question_tokens:
            return self.question_tokens
        if self.num_answer_tokens is not None:
            return (self.num_answer_tokens,)
        return (self.max_tokens if prompt.max_tokens is None else prompt.max_tokens,)

    def fitting(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> bool:
        """Return whether each of a row's prompts fits with its output."""
        pairs = zip(prompts, outputs, strict=True)
        return all(len(tokens) + output <= self.max_model_len for tokens, output in pairs)


def plan_rows(
    prompts: Iterable[Prompt], chat: ChatTokenizer, room: Room, profile_id: str
) -> Iterator[pa.RecordBatch]:
    """Yield the prompts as rows of `PLAN_ROWS`, in order, in chunks of `CHUNK_ROWS`."""
    tokenizer = _PromptTokenizer(chat, room, profile_id)
    waiting: deque[Future[pa.RecordBatch]] = deque()
    source = iter(prompts)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenize") as worker:
        while chunk := list(islice(source, CHUNK_ROWS)):
            waiting.append(worker.submit(tokenizer.rows, chunk))
            if len(waiting) > _NUM_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _PromptTokenizer:
    """Tokenizes prompts and says which of them fit."""

    def __init__(self, chat: ChatTokenizer, room: Room, profile_id: str) -> None:
        self._chat = chat
        self._room = room
        self._profile_id = profile_id

    def rows(self, prompts: Sequence[Prompt]) -> pa.RecordBatch:
        """Return one plan row for each prompt, in order."""
        hopeful = [prompt.fault is None and not self._is_hopeless(prompt) for prompt in prompts]
        whole = [prompt for prompt, is_it in zip(prompts, hopeful, strict=True) if is_it]
        encoded = iter(self._encode([one for prompt in whole for one in prompt.conversations]))
        found = [
            self._found(prompt, list(islice(encoded, len(prompt.conversations))) if is_it else None)
            for prompt, is_it in zip(prompts, hopeful, strict=True)
        ]
        return rows_of(prompts, found, self._profile_id)

    def _is_hopeless(self, prompt: Prompt) -> bool:
        """Whether a prompt is too long by its characters alone: a token holds only so many.

        Spares tokenizing, say, 10 MB for a context of 8,192 tokens.
        """
        if prompt.shorten is not None:
            return False
        characters = _num_characters(prompt.conversations[0])
        return characters > self._room.max_model_len * self._chat.max_token_characters

    def _encode(self, conversations: list[Conversation]) -> list[list[int] | Fault]:
        try:
            return list(self._chat.encode(conversations))
        except TemplateRefusedError as error:
            if len(conversations) == 1:
                return [Fault("TEMPLATE_ERROR", str(error))]
            return [one for messages in conversations for one in self._encode([messages])]

    def _found(
        self, prompt: Prompt, encoded: list[list[int] | Fault] | None
    ) -> TokenizedPrompts | Fault:
        """Return the row's tokens if they fit, cut where the job allows it."""
        if prompt.fault is not None:
            return prompt.fault
        outputs = self._room.output_tokens(prompt)
        if encoded is None:
            size = f"{_num_characters(prompt.conversations[0])} characters"
            return _too_long(size, max(outputs), self._room)
        tokens: list[list[int]] = []
        for one in encoded:
            if isinstance(one, Fault):
                return one
            tokens.append(one)
        num_tokens = sum(map(len, tokens))
        if prompt.shorten is not None and not self._room.fitting(tokens, outputs):
            tokens = self._shortened(prompt, outputs) or tokens
        if not self._room.fitting(tokens, outputs):
            size = f"{max(map(len, tokens))} tokens"
            return _too_long(size, max(outputs), self._room)
        return TokenizedPrompts(
            prompts=tokens,
            has_questions=bool(self._room.question_tokens),
            num_output_tokens=sum(outputs),
            num_truncated_tokens=num_tokens - sum(map(len, tokens)),
        )

    def _shortened(self, prompt: Prompt, outputs: tuple[int, ...]) -> list[list[int]] | None:
        """Return the most of the prompts that fits, by bisection over their longest value."""
        assert prompt.shorten is not None
        low, high = 0, max(len(message.content) for message in prompt.conversations[0])
        best: list[list[int]] | None = None
        while low <= high:
            middle = (low + high) // 2
            encoded = self._encode(list(prompt.shorten(middle)))
            tokens = [one for one in encoded if not isinstance(one, Fault)]
            is_sound = len(tokens) == len(outputs)
            if not encoded or (is_sound and self._room.fitting(tokens, outputs)):
                best = tokens if is_sound else best
                low = middle + 1
            else:
                high = middle - 1
        return best


def _num_characters(conversation: Conversation) -> int:
    return sum(len(message.content) for message in conversation)


def _too_long(size: str, num_output: int, room: Room) -> Fault:
    return Fault(
        "PROMPT_TOO_LONG",
        f"{size} and {num_output} output tokens do not fit {room.max_model_len} tokens of context",
    )
