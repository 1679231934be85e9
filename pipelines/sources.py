"""How one row of the input becomes a conversation: by template, from a column, from messages.

A source names the columns it reads and turns their values into messages or a fault. A job
with questions has a conversation for each of them, all by one template.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pipelines.tables import NOT_TEXT
from pipelines.templates import RenderError, RowTemplate
from schemas.errors import SettingsError
from schemas.job_spec import PromptSource
from schemas.prompts import Conversation, Fault, Message, Shorten
from schemas.questions import QUESTION

ROLES = ("system", "user", "assistant", "tool")

Row = Mapping[str, object]


class Source(Protocol):
    """Turns a row's values into conversations."""

    columns: tuple[str, ...]
    """The columns it reads."""

    def check(self, columns: Sequence[str], file: str) -> None:
        """Return if a file with these columns can be read.

        Raises:
            SettingsError: one of them has a name that means something else here.
        """
        ...

    def conversations(self, row: Row) -> tuple[Conversation, ...] | Fault:
        """Return the row's one conversation, or one for each question; or why there is none."""
        ...


def source_of(prompt: PromptSource, questions: Sequence[str] = ()) -> Source:
    """Return the source that a job file's `prompt` and `questions` describe.

    Raises:
        SettingsError: its template does not parse, or has no place for the questions.
    """
    if prompt.messages is not None:
        return MessagesColumn(prompt.messages)
    if prompt.column is not None:
        return TextColumn(prompt.column, system=prompt.system)
    return Template(prompt.user or "", system=prompt.system, questions=questions)


def shortener(source: Source, row: Row) -> Shorten:
    """Return a function that gives the row's conversations with its longest text value cut.

    The value is cut at its end, whichever column it stands in, so that a question behind a
    long document stays whole.
    """
    lengths = {name: _text_length(row[name]) for name in source.columns}
    longest = max(lengths, key=lambda name: lengths[name])

    def shortened(num_characters: int) -> tuple[Conversation, ...]:
        cut = {**row, longest: _cut(row[longest], num_characters)}
        found = source.conversations(cut)
        return () if isinstance(found, Fault) else found

    return shortened


class Template:
    """A prompt written by a template over the row's columns, once for each question."""

    def __init__(self, text: str, *, system: str | None, questions: Sequence[str] = ()) -> None:
        """Compile the template; see `RowTemplate` for errors.

        Raises:
            SettingsError: there are questions, and the template has no place for them, or
                for nothing else.
        """
        self._template = RowTemplate(text)
        self._before = _system(system)
        self._questions = tuple(questions)
        names = self._template.columns - {QUESTION} if questions else self._template.columns
        if questions and (QUESTION not in self._template.columns or not names):
            raise SettingsError(
                "the job has questions: prompt.user must name {{ question }} and a column of the "
                f"input; it names {', '.join(sorted(self._template.columns))}"
            )
        self.columns = tuple(sorted(names))

    def check(self, columns: Sequence[str], file: str) -> None:
        """Refuse a column whose name means something else in the template."""
        if self._questions and QUESTION in columns:
            raise SettingsError(
                f"{file} has a column `{QUESTION}`, and in prompt.user that is each of the job's "
                "questions; rename the column"
            )
        for name in sorted(self._template.functions & set(columns)):
            raise SettingsError(
                f"{file} has a column `{name}`, and in prompt.user that is a function of Jinja; "
                "rename the column"
            )

    def conversations(self, row: Row) -> tuple[Conversation, ...] | Fault:
        """Return system and user message, per question; a null column renders as nothing."""
        used = [row[name] for name in self.columns]
        if NOT_TEXT in used:
            return Fault("NOT_TEXT", f"a value that cannot be read, in one of {self._names}")
        if all(map(_is_blank, used)):
            if all(value is None for value in used):
                return Fault("NULL_PROMPT", f"null in every column of the template: {self._names}")
            return Fault("EMPTY_PROMPT", f"no text in any column of the template: {self._names}")
        try:
            if self._questions:
                texts = [self._template.render({**row, QUESTION: one}) for one in self._questions]
            else:
                texts = [self._template.render(row)]
        except RenderError as error:
            return Fault("TEMPLATE_ERROR", str(error))
        if any(map(_is_blank, texts)):
            return Fault("EMPTY_PROMPT", "the template gives no text for this row")
        return tuple((*self._before, Message("user", text)) for text in texts)

    @property
    def _names(self) -> str:
        return ", ".join(self.columns)


class TextColumn:
    """A column that already holds the prompt."""

    def __init__(self, column: str, *, system: str | None) -> None:
        """Read prompts from `column`."""
        self._column = column
        self._before = _system(system)
        self.columns = (column,)

    def check(self, columns: Sequence[str], file: str) -> None:
        """Return: any name will do."""

    def conversations(self, row: Row) -> tuple[Conversation, ...] | Fault:
        """Return system and user message; the text is taken literally."""
        text = row[self._column]
        if text is None:
            return Fault("NULL_PROMPT", f"`{self._column}` is null")
        if not isinstance(text, str):
            return Fault("NOT_TEXT", f"`{self._column}` holds {_kind(text)}, not text")
        if _is_blank(text):
            return Fault("EMPTY_PROMPT", f"`{self._column}` holds no text")
        return ((*self._before, Message("user", text)),)


class MessagesColumn:
    """A column of lists of {role, content}; null keys in the structs are left out."""

    def __init__(self, column: str) -> None:
        """Read conversations from `column`."""
        self._column = column
        self.columns = (column,)

    def check(self, columns: Sequence[str], file: str) -> None:
        """Return: any name will do."""

    def conversations(self, row: Row) -> tuple[Conversation, ...] | Fault:
        """Return the row's own messages."""
        turns = row[self._column]
        if turns is None:
            return Fault("NULL_PROMPT", f"`{self._column}` is null")
        if not isinstance(turns, list):
            return Fault(
                "NOT_TEXT", f"`{self._column}` holds {_kind(turns)}, not a list of messages"
            )
        messages: list[Message] = []
        for number, turn in enumerate(turns):
            message = _message(turn, f"message {number} of `{self._column}`")
            if isinstance(message, Fault):
                return message
            messages.append(message)
        if all(not message.content.strip() for message in messages):
            return Fault("EMPTY_PROMPT", f"`{self._column}` holds no text")
        return (tuple(messages),)


def _message(turn: object, where: str) -> Message | Fault:
    if not isinstance(turn, dict):
        return Fault("NOT_TEXT", f"{where} is {_kind(turn)}, not {{role, content}}")
    fields = {key: value for key, value in turn.items() if value is not None}
    role, content = fields.get("role"), fields.get("content")
    if role not in ROLES:
        return Fault("NOT_TEXT", f"{where} has no role of {', '.join(ROLES)}")
    if not isinstance(content, str):
        return Fault("NOT_TEXT", f"{where} holds {_kind(content)} as content, not text")
    unknown = sorted(set(fields) - {"role", "content", "name"})
    if unknown:
        return Fault("NOT_TEXT", f"{where} has {', '.join(unknown)[:80]}, which is not supported")
    return Message(str(role), content)


def _system(text: str | None) -> tuple[Message, ...]:
    return () if text is None else (Message("system", text),)


def _kind(value: object) -> str:
    if value is NOT_TEXT:
        return "what cannot be read (bytes that are not UTF-8, a date out of range)"
    return "null" if value is None else type(value).__name__


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and (not value or value.isspace()))


def _text_length(value: object) -> int:
    if isinstance(value, list):
        return max(
            (_text_length(turn.get("content")) for turn in value if isinstance(turn, dict)),
            default=0,
        )
    return len(value) if isinstance(value, str) else 0


def _cut(value: object, num_characters: int) -> object:
    """Return the value with its (longest) text cut; a list of messages keeps its other turns."""
    if isinstance(value, str):
        return value[:num_characters]
    if isinstance(value, list):
        longest = max(range(len(value)), key=lambda index: _text_length([value[index]]))
        turn = value[longest]
        if isinstance(turn, dict):
            shorter = {**turn, "content": _cut(turn.get("content"), num_characters)}
            return [*value[:longest], shorter, *value[longest + 1 :]]
    return value
