"""The door to the model's tokenizer and chat template: conversations to tokens and back.

Text of a conversation is data: what looks like a special token inside it is encoded as plain
text. The model's own template is trusted with the structure only.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import jinja2
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from schemas.errors import SettingsError
from schemas.prompts import Message

_PROBES = ("x", " \n x \t\n", "a<b>&'\"{{ c }}{% d %}", "\n\n", "x\r\ny ")
"""Contents that tell a template which copies content as it is from one that changes it."""


class TemplateRefusedError(Exception):
    """The model's chat template does not take this conversation (its roles, for example)."""


class ChatTokenizer:
    """A model's tokenizer and chat template."""

    def __init__(self, folder: str) -> None:
        """Load both from a checkpoint folder; no code of the folder is run.

        Raises:
            SettingsError: there is no fast tokenizer in the folder.
        """
        try:
            loaded = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"{folder}: no tokenizer can be loaded: {str(error)[:200]}"
            ) from error
        if not isinstance(loaded, PreTrainedTokenizerFast):
            raise SettingsError(f"{folder}: promptmill needs tokenizer.json (a fast tokenizer)")
        self._tokenizer = loaded
        self._special = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
        self._literal = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
        for backend in (self._special, self._literal):
            backend.no_padding()
            backend.no_truncation()
        self._literal.encode_special_tokens = True
        added = loaded.added_tokens_decoder.values()
        tokens = sorted({token.content for token in added}, key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, tokens))) if tokens else None
        self._frames: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        self.vocab_size = len(loaded)
        end = loaded.eos_token_id
        self.end_token_id = end if isinstance(end, int) else None
        self.max_token_characters = max(map(len, loaded.get_vocab()), default=1)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be told from plain text; a base model has no template."""
        return self._tokenizer.chat_template is not None

    def encode(self, conversations: Sequence[tuple[Message, ...]]) -> list[list[int]]:
        """Return the prompt tokens of each conversation, the answer's opening included.

        Tokenizes on all cores; the same text always gets the same tokens.

        Raises:
            TemplateRefusedError: the template refuses one of them; encode them one by one.
        """
        texts = [self._text(messages) for messages in conversations]
        risky = [
            index for index, messages in enumerate(conversations) if self._has_special(messages)
        ]
        encoded = [
            one.ids for one in self._special.encode_batch_fast(texts, add_special_tokens=False)
        ]
        for index in risky:
            encoded[index] = self._encode_literally(conversations[index])
        return encoded

    def encode_answer(self, text: str) -> list[int]:
        """Return the tokens of `text` as an answer begins with it."""
        return self._literal.encode(text, add_special_tokens=False).ids

    def decode(self, answers: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of token lists, special tokens left out."""
        return self._special.decode_batch([list(ids) for ids in answers], skip_special_tokens=True)

    def _has_special(self, messages: tuple[Message, ...]) -> bool:
        pattern = self._special_pattern
        return pattern is not None and any(pattern.search(text) for _, text in messages)

    def _text(self, messages: tuple[Message, ...]) -> str:
        """Return the templated conversation; by joining strings where that is the same."""
        roles = tuple(role for role, _ in messages)
        if roles not in self._frames:
            self._frames[roles] = self._frame(roles)
        frame = self._frames[roles]
        if frame is None:
            return self._render(messages)
        pieces = [frame[0]]
        for (_, content), after in zip(messages, frame[1:], strict=True):
            pieces += (content, after)
        return "".join(pieces)

    def _frame(self, roles: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the template's fixed text around the contents of these roles.

        None where the template changes contents (some strip them): then it is run for each row.
        """
        marks = [f"\u2e28{index}\u2e29" for index in range(len(roles))]
        text = self._render(tuple(map(Message, roles, marks)))
        pieces: list[str] = []
        for mark in marks:
            if text.count(mark) != 1:
                return None
            before, text = text.split(mark)
            pieces.append(before)
        frame = (*pieces, text)
        for probe in _PROBES:
            joined = frame[0] + "".join(probe + after for after in frame[1:])
            if self._render(tuple(Message(role, probe) for role in roles)) != joined:
                return None
        return frame

    def _render(self, messages: tuple[Message, ...]) -> str:
        if not self.has_chat_template:
            return str(self._tokenizer.bos_token or "") + "\n\n".join(
                content for _, content in messages
            )
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [message._asdict() for message in messages],
                    tokenize=False,
                    add_generation_prompt=True,
                )
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            roles = ", ".join(role for role, _ in messages)
            raise TemplateRefusedError(
                f"the chat template refuses the roles {roles}"[:200]
            ) from error

    def _encode_literally(self, messages: tuple[Message, ...]) -> list[int]:
        """Encode a conversation whose text holds special tokens as text.

        They are replaced by marks before the template runs, and each mark's own text is then
        encoded without looking for special tokens.
        """
        assert self._special_pattern is not None
        literals: list[str] = []
        nonce = "\u2e28"
        while any(nonce in content for _, content in messages):
            nonce += "\u2e28"

        def mark(match: re.Match[str]) -> str:
            literals.append(match.group())
            return f"{nonce}{len(literals) - 1}\u2e29"

        marked = tuple(
            Message(role, self._special_pattern.sub(mark, content)) for role, content in messages
        )
        ids: list[int] = []
        for index, piece in enumerate(re.split(f"{nonce}(\\d+)\u2e29", self._render(marked))):
            if index % 2:
                ids += self._literal.encode(literals[int(piece)], add_special_tokens=False).ids
            else:
                ids += self._special.encode(piece, add_special_tokens=False).ids
        return ids


def load(folder: str | Path) -> ChatTokenizer:
    """Return the tokenizer and chat template of the checkpoint in `folder`."""
    return ChatTokenizer(str(folder))
