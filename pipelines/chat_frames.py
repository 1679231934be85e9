"""What a chat template puts around contents, as text and as tokens that are made only once.

A special token of the template is a wall: text on one side of it is tokenized without a look
at the other. So only the stretches that hold a row's own text are tokenized for each row.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.prompts import Message

Encode = Callable[[str], list[int]]

_PROBES = ("x", " \n x \t\n", "a<b>&'\"{{ c }}{% d %}", "\n\n", "x\r\ny ", "é 中 🙂")
"""Contents that tell a template which copies content as it is from one that changes it."""
_MAX_KNOWN = 1024

Stretch = tuple[str | int, ...]
"""Text and numbers of messages, whose contents stand there, between two special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A template's fixed text around the contents of its roles: one piece more than roles.

    `parts` is the same cut at special tokens: tokens that are always the same, and stretches
    with contents in them. None where the tokenizer looks across special tokens.
    """

    pieces: tuple[str, ...]
    parts: tuple[list[int] | Stretch, ...] | None = None

    def text(self, contents: Sequence[str]) -> str:
        """Return the whole conversation."""
        joined = [self.pieces[0]]
        for content, after in zip(contents, self.pieces[1:], strict=True):
            joined += (content, after)
        return "".join(joined)


def frame_of(roles: Sequence[str], render: Callable[[Sequence[Message]], str]) -> Frame | None:
    """Return the frame of conversations with these roles; None where contents are changed.

    Some templates strip contents, or leave some out: those are run for each row.
    """
    marks = [f"\u2e28{index}\u2e29" for index in range(len(roles))]
    text = render(tuple(map(Message, roles, marks)))
    pieces: list[str] = []
    for mark in marks:
        if text.count(mark) != 1:
            return None
        before, text = text.split(mark)
        pieces.append(before)
    frame = Frame(pieces=(*pieces, text))
    for probe in _PROBES:
        if render(tuple(Message(role, probe) for role in roles)) != frame.text(
            [probe] * len(roles)
        ):
            return None
    return frame


def with_tokens(frame: Frame, added: Sequence[dict[str, Any]], encode: Encode) -> Frame:
    """Return the frame with its `parts`, where joining them gives the tokens of the whole text.

    `added` are the tokenizer's added tokens as its file has them. A token that takes blanks
    beside it, or that could begin in a content and end in the frame, makes no wall.
    """
    walls = [str(token["content"]) for token in added if not token.get("normalized", True)]
    if not walls:
        return frame
    pattern = re.compile("|".join(map(re.escape, sorted(walls, key=len, reverse=True))))
    bendable = {
        str(token["content"])
        for token in added
        if token.get("lstrip") or token.get("rstrip") or token.get("single_word")
    }
    found = {match for piece in frame.pieces for match in pattern.findall(piece)}
    if found & bendable or any(_overlaps(wall, one) for wall in walls for one in found):
        return frame
    parts: list[list[int] | Stretch] = []
    for stretch in _stretches(frame.pieces, pattern):
        constant = "".join(str(one) for one in stretch)
        is_own = any(isinstance(one, int) for one in stretch)
        parts.append(stretch if is_own else encode(constant))
    cut = Frame(pieces=frame.pieces, parts=tuple(parts))
    for probe in _PROBES:
        contents = [probe] * (len(frame.pieces) - 1)
        if _joined(cut, contents, encode) != encode(frame.text(contents)):
            return frame
    return cut


def _overlaps(token: str, wall: str) -> bool:
    """Whether `token` can end inside `wall`, having begun before it."""
    return any(token.endswith(wall[:length]) for length in range(1, len(wall)))


def _stretches(pieces: Sequence[str], walls: re.Pattern[str]) -> Iterator[Stretch]:
    """Yield the frame cut before and after each wall, in order."""
    stretch: list[str | int] = []
    for number, piece in enumerate(pieces):
        if number:
            stretch.append(number - 1)
        start = 0
        for wall in walls.finditer(piece):
            if before := piece[start : wall.start()]:
                stretch.append(before)
            if stretch:
                yield tuple(stretch)
            yield (wall.group(),)
            stretch, start = [], wall.end()
        if rest := piece[start:]:
            stretch.append(rest)
    if stretch:
        yield tuple(stretch)


def _joined(frame: Frame, contents: Sequence[str], encode: Encode) -> list[int]:
    assert frame.parts is not None
    ids: list[int] = []
    for part in frame.parts:
        ids += part if isinstance(part, list) else encode(filled(part, contents))
    return ids


def filled(stretch: Stretch, contents: Sequence[str]) -> str:
    """Return the stretch's text with these contents in it."""
    return "".join([one if isinstance(one, str) else contents[one] for one in stretch])


class FrameEncoder:
    """Conversations as the texts that have to be tokenized for them, and their tokens from those.

    A stretch that holds only what the system says is tokenized once for all rows.
    """

    def __init__(self, encode: Encode) -> None:
        """Tokenize what is always the same with `encode`."""
        self._encode = encode
        self._known: dict[str, list[int]] = {}

    def parts(self, frame: Frame, messages: Sequence[Message]) -> list[list[int] | str]:
        """Return the conversation as tokens that are known and texts that are not, in order."""
        if frame.parts is None:
            return [frame.text([content for _, content in messages])]
        contents = [content for _, content in messages]
        parts: list[list[int] | str] = []
        for part in frame.parts:
            if isinstance(part, list):
                parts.append(part)
                continue
            text = filled(part, contents)
            is_system = all(isinstance(one, str) or messages[one].role == "system" for one in part)
            parts.append(self._system(text) if is_system else text)
        return parts

    def _system(self, text: str) -> list[int] | str:
        if text not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                return text
            self._known[text] = self._encode(text)
        return self._known[text]
