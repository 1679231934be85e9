"""What a row asks of the engine, and what its answers mean: text, JSON, or a label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from pipelines.chat import ChatTokenizer
from pipelines.json_answers import JsonShape
from pipelines.labels import LabelTree
from schemas.generations import FinishReason, QuestionAnswer
from schemas.prompts import Fault
from schemas.requests import Answer, SamplingSettings

Tokens = tuple[int, ...]
Lengths = tuple[int, ...]
"""Tokens of each of a row's prompts."""

Ask = tuple[Tokens, SamplingSettings]
"""One request to the engine: prompt tokens and how to sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a row's answers come to. `fault` is set where they are not acceptable.

    `answers` are those to the job's questions that are acceptable; None for a job without.
    """

    text: str
    finish_reason: FinishReason
    stop_reason: str | None
    label: str | None = None
    label_probabilities: tuple[tuple[str, float], ...] | None = None
    label_margin: float | None = None
    answers: tuple[QuestionAnswer, ...] | None = None
    fault: Fault | None = None


class Asking(Protocol):
    """How a job asks and reads answers."""

    @property
    def num_answer_tokens(self) -> int | None:
        """Output tokens of every row's answers, where they are fixed; None: max_tokens bounds."""
        ...

    @property
    def question_tokens(self) -> tuple[int, ...]:
        """The most output tokens of each of the job's questions; empty for a job without."""
        ...

    @property
    def num_asks(self) -> int:
        """Engine requests per row."""
        ...

    @property
    def first_asks(self) -> tuple[int, ...]:
        """The place among a row's asks of the first on each of its prompts."""
        ...

    def asks(self, prompts: Sequence[Tokens], sampling: SamplingSettings) -> list[Ask]:
        """Return what to ask the engine for one row: its prompt, or a prompt per question."""
        ...

    def meanings(
        self, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[Meaning]:
        """Return what the answers of each row mean; each row has `num_asks` of them."""
        ...


def row_sampling(
    job: SamplingSettings, max_tokens: int | None, temperature: float | None, seed: int | None
) -> SamplingSettings:
    """Return the job's settings with the row's own in their place."""
    if max_tokens is None and temperature is None and seed is None:
        return job
    return _overridden(job, max_tokens, temperature, seed)


@lru_cache(maxsize=4096)
def _overridden(
    job: SamplingSettings, max_tokens: int | None, temperature: float | None, seed: int | None
) -> SamplingSettings:
    return replace(
        job,
        max_tokens=job.max_tokens if max_tokens is None else max_tokens,
        temperature=job.temperature if temperature is None else temperature,
        seed=job.seed if seed is None else seed,
    )


class AskForText:
    """Free text."""

    num_answer_tokens: int | None = None
    question_tokens: tuple[int, ...] = ()
    num_asks = 1
    first_asks = (0,)

    def __init__(self, chat: ChatTokenizer) -> None:
        """Read answers with the model's own tokenizer."""
        self._chat = chat

    def asks(self, prompts: Sequence[Tokens], sampling: SamplingSettings) -> list[Ask]:
        """Return the prompt as it is."""
        return [(prompts[0], sampling)]

    def meanings(
        self, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[Meaning]:
        """Return the texts; detokenized on all cores."""
        del prompts
        texts = self._chat.decode([one.token_ids for (one,) in answers])
        return [
            Meaning(
                text=_until(text, one.stop_reason),
                finish_reason=one.finish_reason,
                stop_reason=one.stop_reason,
            )
            for text, (one,) in zip(texts, answers, strict=True)
        ]


def _until(text: str, stop: str | None) -> str:
    """Return the text before the stop string that ended it; the tokens still hold that one."""
    return text if stop is None else text.partition(stop)[0]


class AskForJson(AskForText):
    """JSON of one schema: constrained while it is written, and validated afterwards."""

    def __init__(self, shape: JsonShape, chat: ChatTokenizer) -> None:
        """Ask for JSON of this shape."""
        super().__init__(chat)
        self._shape = shape

    def asks(self, prompts: Sequence[Tokens], sampling: SamplingSettings) -> list[Ask]:
        """Return the prompt with the schema as its constraint."""
        return [(prompts[0], _constrained(sampling, self._shape.text))]

    def meanings(
        self, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[Meaning]:
        """Return the texts; one that was cut short or does not validate has a fault."""
        return [
            replace(found, fault=self._shape.fault(found.text, found.finish_reason))
            for found in super().meanings(answers, prompts)
        ]


@lru_cache(maxsize=4096)
def _constrained(sampling: SamplingSettings, schema: str) -> SamplingSettings:
    return replace(sampling, json_schema=schema)


class AskForLabel:
    """One of the job's choices, with a probability for each."""

    question_tokens: tuple[int, ...] = ()
    first_asks = (0,)

    def __init__(self, tree: LabelTree) -> None:
        """Ask at every fork of the tree."""
        self._tree = tree
        self._settings = [tree.sampling(fork) for fork in tree.forks]
        self.num_answer_tokens: int | None = tree.num_answer_tokens
        self.num_asks = len(tree.forks)

    def asks(self, prompts: Sequence[Tokens], sampling: SamplingSettings) -> list[Ask]:
        """Return one one-token request per fork; the row's sampling settings play no part."""
        del sampling
        return [
            (prompts[0] + fork.path, settings)
            for fork, settings in zip(self._tree.forks, self._settings, strict=True)
        ]

    def meanings(
        self, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[Meaning]:
        """Return the most probable choice of each row; the first of equals."""
        del prompts
        return [self._meaning(row) for row in answers]

    def _meaning(self, answers: Sequence[Answer]) -> Meaning:
        shares = self._tree.probabilities([answer.logprobs for answer in answers])
        best, second = sorted(shares, reverse=True)[:2]
        label = self._tree.choices[shares.index(best)]
        return Meaning(
            text=label,
            finish_reason="stop",
            stop_reason=None,
            label=label,
            label_probabilities=tuple(zip(self._tree.choices, shares, strict=True)),
            label_margin=best - second,
        )
