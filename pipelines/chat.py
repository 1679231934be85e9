"""The door to the model's tokenizer and chat template: conversations to tokens and back.

Text of a conversation is data: what looks like a special token inside it is encoded as plain
text. The model's own template is trusted with the structure only.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from pipelines.chat_frames import Frame, FrameEncoder, frame_of, with_tokens
from schemas.errors import SettingsError
from schemas.prompts import Message


class TemplateRefusedError(Exception):
    """The model's chat template does not take this conversation (its roles, for example)."""


class ChatTokenizer:
    """A model's tokenizer and chat template."""

    def __init__(self, folder: Path) -> None:
        """Load both from a checkpoint folder; no code of the folder is run.

        Raises:
            SettingsError: the folder's tokenizer or chat template cannot be loaded.
        """
        config = _json(folder / "tokenizer_config.json")
        content = _text(folder / "tokenizer.json")
        self._special = _tokenizer(content, folder)
        self._literal = _tokenizer(content, folder)
        self._literal.encode_special_tokens = True
        self._added = json.loads(content).get("added_tokens", [])
        tokens = sorted({str(token["content"]) for token in self._added}, key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, tokens))) if tokens else None
        self._frames: dict[tuple[str, ...], Frame | None] = {}
        self._known = FrameEncoder(self._encode)
        self._template_values = {
            name: token for name in _TOKEN_NAMES if (token := _token(config.get(name))) is not None
        }
        self._template = _chat_template(folder, config)
        end = self._template_values.get("eos_token")
        self.end_token_id: int | None = None if end is None else self._special.token_to_id(end)
        vocabulary = self._special.get_vocab(with_added_tokens=True)
        self.max_token_characters = max(map(len, vocabulary), default=1)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be told from plain text; a base model has no template."""
        return self._template is not None

    def encode(self, conversations: Sequence[tuple[Message, ...]]) -> list[list[int]]:
        """Return the prompt tokens of each conversation, the answer's opening included.

        Tokenizes on all cores; the same text always gets the same tokens.

        Raises:
            TemplateRefusedError: the template refuses one of them; encode them one by one.
        """
        parts = [self._parts(messages) for messages in conversations]
        texts = [part for row in parts for part in row if isinstance(part, str)]
        encoded = self._special.encode_batch_fast(texts, add_special_tokens=False)
        found = iter(encoded)
        joined: list[list[int]] = []
        for row, messages in zip(parts, conversations, strict=True):
            ids: list[int] = []
            for part in row:
                ids += next(found).ids if isinstance(part, str) else part
            joined.append(self._encode_literally(messages) if self._has_special(messages) else ids)
        return joined

    def encode_answer(self, text: str) -> list[int]:
        """Return the tokens of `text` as an answer begins with it."""
        return self._literal.encode(text, add_special_tokens=False).ids

    def decode(self, answers: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of token lists, special tokens left out."""
        return self._special.decode_batch([list(ids) for ids in answers], skip_special_tokens=True)

    def _has_special(self, messages: tuple[Message, ...]) -> bool:
        pattern = self._special_pattern
        return pattern is not None and any(pattern.search(text) for _, text in messages)

    def _parts(self, messages: tuple[Message, ...]) -> list[list[int] | str]:
        """Return the templated conversation: tokens that are known, texts to be tokenized."""
        roles = tuple([role for role, _ in messages])
        if roles not in self._frames:
            frame = frame_of(roles, self._render)
            self._frames[roles] = frame and with_tokens(frame, self._added, self._encode)
        frame = self._frames[roles]
        return [self._render(messages)] if frame is None else self._known.parts(frame, messages)

    def _encode(self, text: str) -> list[int]:
        return self._special.encode(text, add_special_tokens=False).ids

    def _render(self, messages: Sequence[Message]) -> str:
        if self._template is None:
            begin = self._template_values.get("bos_token", "")
            return begin + "\n\n".join(content for _, content in messages)
        try:
            return self._template.render(
                messages=[message._asdict() for message in messages],
                add_generation_prompt=True,
                raise_exception=_refuse,
                **self._template_values,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
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
                ids += self._encode(piece)
        return ids


_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


def _tokenizer(content: str, folder: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:
        raise SettingsError(f"{folder}/tokenizer.json: {str(error)[:200]}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _chat_template(folder: Path, config: dict[str, Any]) -> jinja2.Template | None:
    """Return the folder's chat template, compiled as the transformers library compiles it.

    `strftime_now` is left undefined: a prompt must not depend on the day it is made; templates
    that know it fall back to a fixed date.

    Source: transformers, utils/chat_template_utils.py. It is not imported, because it loads
    torch: 500 MB of memory and seconds at every start (docs/decisions/0007).
    """
    file = folder / "chat_template.jinja"
    source = _text(file) if file.is_file() else config.get("chat_template")
    if isinstance(source, list):
        source = {one["name"]: one["template"] for one in source}.get("default")
    if not isinstance(source, str):
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise SettingsError(f"{folder}: its chat template has a fault: {error.message}") from error


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _token(found: object) -> str | None:
    """Return a token's text, which the config gives as text or as {content: text}."""
    text = found.get("content") if isinstance(found, dict) else found
    return text if isinstance(text, str) else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: no tokenizer can be loaded: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def load(folder: str | Path) -> ChatTokenizer:
    """Return the tokenizer and chat template of the checkpoint in `folder`."""
    return ChatTokenizer(Path(folder))
