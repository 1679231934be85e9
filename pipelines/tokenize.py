"""Tokenizing beside reading: prompts become plan rows, a chunk at a time.

While one chunk is tokenized on all cores, the next is read and rendered.
"""

import json
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from pipelines.chat import ChatTokenizer, TemplateRefusedError
from schemas.ids import request_digest
from schemas.plans import PlanRow
from schemas.prompts import Fault, Message, Prompt

CHUNK_ROWS = 1024
_NUM_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a request may take, in tokens: `max_model_len` holds prompt and output.

    `num_answer_tokens` is None where the job's or the row's max_tokens bounds the output;
    labels take a fixed number of tokens instead.
    """

    max_model_len: int
    max_tokens: int
    num_answer_tokens: int | None

    def output_tokens(self, prompt: Prompt) -> int:
        """Return the most output tokens that this row's request may take."""
        if self.num_answer_tokens is not None:
            return self.num_answer_tokens
        return self.max_tokens if prompt.max_tokens is None else prompt.max_tokens


def plan_rows(
    prompts: Iterable[Prompt], chat: ChatTokenizer, room: Room, profile_id: str
) -> Iterator[list[PlanRow]]:
    """Yield the prompts as plan rows, in order, in chunks of `CHUNK_ROWS`."""
    tokenizer = _PromptTokenizer(chat, room, profile_id)
    waiting: deque[Future[list[PlanRow]]] = deque()
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

    def rows(self, prompts: Sequence[Prompt]) -> list[PlanRow]:
        """Return one plan row for each prompt, in order."""
        whole = [
            prompt for prompt in prompts if prompt.fault is None and not self._is_hopeless(prompt)
        ]
        tokens = iter(self._encode([prompt.messages for prompt in whole]))
        chosen = set(map(id, whole))
        return [
            self._row(prompt, next(tokens) if id(prompt) in chosen else None) for prompt in prompts
        ]

    def _is_hopeless(self, prompt: Prompt) -> bool:
        """Whether a prompt is too long by its characters alone: a token holds only so many.

        Spares tokenizing, say, 10 MB for a context of 8,192 tokens.
        """
        if prompt.shorten is not None:
            return False
        characters = sum(len(message.content) for message in prompt.messages)
        return characters > self._room.max_model_len * self._chat.max_token_characters

    def _encode(self, conversations: list[tuple[Message, ...]]) -> list[list[int] | Fault]:
        try:
            return list(self._chat.encode(conversations))
        except TemplateRefusedError as error:
            if len(conversations) == 1:
                return [Fault("TEMPLATE_ERROR", str(error))]
            return [one for messages in conversations for one in self._encode([messages])]

    def _row(self, prompt: Prompt, tokens: list[int] | Fault | None) -> PlanRow:
        if prompt.fault is not None:
            return reject_row(prompt, prompt.fault)
        if isinstance(tokens, Fault):
            return reject_row(prompt, tokens)
        num_output = self._room.output_tokens(prompt)
        allowed = self._room.max_model_len - num_output
        if tokens is None:
            characters = sum(len(message.content) for message in prompt.messages)
            return reject_row(prompt, _too_long(f"{characters} characters", num_output, self._room))
        num_cut = 0
        if len(tokens) > allowed and prompt.shorten is not None:
            num_tokens = len(tokens)
            tokens = self._shortened(prompt, allowed) or tokens
            num_cut = num_tokens - len(tokens)
        if len(tokens) > allowed:
            return reject_row(prompt, _too_long(f"{len(tokens)} tokens", num_output, self._room))
        return self._request(prompt, tokens, num_output, num_cut)

    def _request(self, prompt: Prompt, tokens: list[int], num_output: int, num_cut: int) -> PlanRow:
        own = (prompt.max_tokens, prompt.temperature, prompt.seed)
        overrides = b"" if own == (None, None, None) else json.dumps(own).encode("ascii")
        digest = request_digest(self._profile_id, overrides, array("i", tokens).tobytes())
        return PlanRow(
            row_key=prompt.row_key,
            file_number=prompt.file_number,
            row=prompt.row,
            request_digest=digest,
            prompt_token_ids=tuple(tokens),
            num_prompt_tokens=len(tokens),
            predicted_output_tokens=num_output,
            max_output_tokens=num_output,
            num_truncated_tokens=num_cut,
            prefix_group=0,
            max_tokens=prompt.max_tokens,
            temperature=prompt.temperature,
            seed=prompt.seed,
            reject_code=None,
            reject_stage=None,
            reject_message=None,
        )

    def _shortened(self, prompt: Prompt, allowed: int) -> list[int] | None:
        """Return the most of the prompt that fits, by bisection over its longest value."""
        assert prompt.shorten is not None
        low, high = 0, max(len(message.content) for message in prompt.messages)
        best: list[int] | None = None
        while low <= high:
            middle = (low + high) // 2
            messages = prompt.shorten(middle)
            tokens = self._encode([messages])[0] if messages else []
            if not messages or (not isinstance(tokens, Fault) and len(tokens) <= allowed):
                best = best if not messages or isinstance(tokens, Fault) else tokens
                low = middle + 1
            else:
                high = middle - 1
        return best


def _too_long(size: str, num_output: int, room: Room) -> Fault:
    return Fault(
        "PROMPT_TOO_LONG",
        f"{size} and {num_output} output tokens do not fit {room.max_model_len} tokens of context",
    )


def reject_row(prompt: Prompt, fault: Fault) -> PlanRow:
    """Return the plan row of a prompt that will not be a request."""
    return PlanRow(
        row_key=prompt.row_key,
        file_number=prompt.file_number,
        row=prompt.row,
        request_digest=None,
        prompt_token_ids=None,
        num_prompt_tokens=0,
        predicted_output_tokens=0,
        max_output_tokens=0,
        num_truncated_tokens=0,
        prefix_group=0,
        max_tokens=prompt.max_tokens,
        temperature=prompt.temperature,
        seed=prompt.seed,
        reject_code=fault.code,
        reject_stage="ingest" if prompt.fault is not None else "plan",
        reject_message=fault.message,
    )
