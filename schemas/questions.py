"""What a row is asked: which answers are allowed, and several questions on one row."""

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from schemas.generations import GENERATIONS
from schemas.partitions import Section
from schemas.rejects import REJECTS

QUESTION = "question"
"""The name by which a template says where the question's text goes."""

MAX_QUESTIONS = 64

FORM_SUFFIXES = (
    "probabilities",
    "margin",
    "finish_reason",
    "num_prompt_tokens",
    "num_output_tokens",
)
"""What follows `<question>_` in the names of a wide row's columns."""

_TAKEN = frozenset({*GENERATIONS.names, *REJECTS.names, "reject_code", "reject_message", QUESTION})


def list_as_tuple(value: object) -> object:
    """Return a list as a tuple, all else as it is: YAML has no tuples."""
    return tuple(value) if isinstance(value, list) else value


def choices_as_tuple(value: object) -> object:
    """Return a list as a tuple.

    Raises:
        ValueError: a choice is what YAML makes of a bare `yes` or `1`.
    """
    if not isinstance(value, list):
        return value
    other = [choice for choice in value if isinstance(choice, bool | int | float)]
    if any(isinstance(choice, bool) for choice in other):
        raise ValueError("YAML reads a bare yes, no, on, off as true and false: put it in quotes")
    if other:
        raise ValueError(f'a choice is text: put it in quotes, "{other[0]}"')
    return tuple(value)


def distinct_choices(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the choices.

    Raises:
        ValueError: one is empty or stands twice.
    """
    if any(not choice.strip() for choice in value):
        raise ValueError("a choice is empty")
    if len(set(value)) != len(value):
        raise ValueError("a choice stands twice")
    return value


class Labels(Section):
    """Answers are exactly one of these choices, each with a probability."""

    choices: tuple[str, ...] = Field(min_length=2, max_length=256)

    _listed = field_validator("choices", mode="before")(choices_as_tuple)
    _distinct = field_validator("choices")(distinct_choices)


class Question(Section):
    """One question on a row: its text, and the answers that it allows.

    With `choices` the answer is one of them, with `json_schema` it is JSON, else free text.
    """

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        max_length=64,
        description="letters, digits and `_`; the answer's column is called so",
    )
    text: str = Field(min_length=1, description="stands where the template says {{ question }}")
    choices: tuple[str, ...] | None = Field(default=None, min_length=2, max_length=256)
    json_schema: dict[str, object] | None = Field(
        default=None, description="constrained, and validated afterwards"
    )
    max_tokens: int | None = Field(
        default=None, ge=1, description="of a free or JSON answer; else that of sampling"
    )

    _listed = field_validator("choices", mode="before")(choices_as_tuple)

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in _TAKEN:
            raise ValueError(f"`{value}` is a column of every row; name the question otherwise")
        return value

    @field_validator("text")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the question is empty")
        return value

    @field_validator("choices")
    @classmethod
    def _distinct(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else distinct_choices(value)

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.choices is not None and self.json_schema is not None:
            raise ValueError("choices and json_schema exclude each other")
        if self.choices is not None and self.max_tokens is not None:
            raise ValueError("an answer with choices takes its own tokens: leave max_tokens out")
        return self


def check_questions(questions: tuple[Question, ...], template: str | None) -> None:
    """Return if every question has columns of its own, and the template a place for it.

    Raises:
        ValueError: two have one name, or one's name is another's column, or there is no place.
    """
    if template is None or not re.search(rf"\b{QUESTION}\b", template):
        raise ValueError(
            "the job has questions: write a template, prompt.user, with {{ question }} where "
            "the question goes, best after the row's text"
        )
    names = [question.name for question in questions]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two questions are called `{twice}`")
    for name in names:
        taken = {f"{name}_{suffix}" for suffix in FORM_SUFFIXES}.intersection(names)
        if taken:
            raise ValueError(
                f"`{taken.pop()}` is a column of question `{name}`; name the question otherwise"
            )
