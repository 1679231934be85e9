"""A job's questions: how each row is asked all of them, and what their answers come to.

A row's questions are neighbours on their way into the engine, so where the template puts the
row's text before the question, the first of them computes it and the others find it cached.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pipelines.asking import (
    Ask,
    AskForJson,
    AskForLabel,
    AskForText,
    Asking,
    Lengths,
    Meaning,
    Tokens,
)
from pipelines.chat import ChatTokenizer
from pipelines.json_answers import JsonShape
from pipelines.labels import LabelTree
from schemas.errors import SettingsError
from schemas.generations import QuestionAnswer
from schemas.job_spec import JobSpec
from schemas.prompts import Fault
from schemas.questions import Question
from schemas.requests import Answer, SamplingSettings


def asking_of(job: JobSpec, chat: ChatTokenizer) -> Asking:
    """Return how this job asks.

    Raises:
        SettingsError: labels cannot be told apart, or a json_schema cannot be asked for.
    """
    if job.questions:
        return AskQuestions([_asked(one, job, chat) for one in job.questions])
    if job.output.labels is not None:
        return _for_label(job.output.labels.choices, chat, "output.labels.choices")
    if job.output.json_schema is not None:
        return AskForJson(JsonShape(job.output.json_schema, where="output.json_schema"), chat)
    return AskForText(chat)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One question: how it is asked, and the most output tokens of its answer."""

    name: str
    asking: Asking
    max_tokens: int


def _asked(question: Question, job: JobSpec, chat: ChatTokenizer) -> _Asked:
    where = f"question `{question.name}`"
    asking: Asking = AskForText(chat)
    if question.choices is not None:
        asking = _for_label(question.choices, chat, f"{where}: choices")
    elif question.json_schema is not None:
        asking = AskForJson(JsonShape(question.json_schema, where=f"{where}: json_schema"), chat)
    max_tokens = asking.num_answer_tokens or question.max_tokens or job.sampling.max_tokens
    return _Asked(name=question.name, asking=asking, max_tokens=max_tokens)


def _for_label(choices: Sequence[str], chat: ChatTokenizer, where: str) -> AskForLabel:
    tokens = [chat.encode_answer(choice) for choice in choices]
    try:
        return AskForLabel(LabelTree(choices, tokens, chat.end_token_id))
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from error


class AskQuestions:
    """Several questions on each row; a row is answered where each of its questions is."""

    def __init__(self, questions: Sequence[_Asked]) -> None:
        """Ask these questions, in this order."""
        self._questions = tuple(questions)
        fixed = [one.asking.num_answer_tokens for one in questions]
        known = [tokens for tokens in fixed if tokens is not None]
        self.num_answer_tokens: int | None = sum(known) if len(known) == len(fixed) else None
        self.question_tokens = tuple(one.max_tokens for one in questions)
        starts = [0]
        for one in questions:
            starts.append(starts[-1] + one.asking.num_asks)
        self.first_asks = tuple(starts[:-1])
        self.num_asks = starts[-1]

    def asks(self, prompts: Sequence[Tokens], sampling: SamplingSettings) -> list[Ask]:
        """Return the requests of all questions; `prompts` are one for each of them."""
        return [
            ask
            for one, prompt in zip(self._questions, prompts, strict=True)
            for ask in one.asking.asks([prompt], _bounded(sampling, one.max_tokens))
        ]

    def meanings(
        self, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[Meaning]:
        """Return what the rows' answers come to; a fault names the first question that has one."""
        found = [
            self._of_question(number, answers, prompts) for number in range(len(self._questions))
        ]
        return [_together(of_row) for of_row in zip(*found, strict=True)]

    def _of_question(
        self, number: int, answers: Sequence[Sequence[Answer]], prompts: Sequence[Lengths]
    ) -> list[tuple[QuestionAnswer, Fault | None]]:
        """Return each row's answer to one question, and what is wrong with it."""
        question, start = self._questions[number], self.first_asks[number]
        own = [row[start : start + question.asking.num_asks] for row in answers]
        meanings = question.asking.meanings(own, [(lengths[number],) for lengths in prompts])
        return [
            (_answer(question.name, meaning, asked, lengths[number]), _named(question, meaning))
            for meaning, asked, lengths in zip(meanings, own, prompts, strict=True)
        ]


@lru_cache(maxsize=4096)
def _bounded(sampling: SamplingSettings, max_tokens: int) -> SamplingSettings:
    return replace(sampling, max_tokens=max_tokens)


def _answer(
    name: str, meaning: Meaning, asked: Sequence[Answer], num_prompt_tokens: int
) -> QuestionAnswer:
    return QuestionAnswer(
        question=name,
        text=meaning.text,
        finish_reason=meaning.finish_reason,
        label=meaning.label,
        label_probabilities=meaning.label_probabilities,
        label_margin=meaning.label_margin,
        num_prompt_tokens=num_prompt_tokens,
        num_cached_tokens=asked[0].num_cached_tokens,
        num_output_tokens=sum(len(one.token_ids) for one in asked),
    )


def _named(question: _Asked, meaning: Meaning) -> Fault | None:
    fault = meaning.fault
    return None if fault is None else Fault(fault.code, f"{question.name}: {fault.message}")


def _together(answered: Sequence[tuple[QuestionAnswer, Fault | None]]) -> Meaning:
    """Return one meaning of a row's answers: their texts by name, as a JSON object."""
    texts = {answer.question: answer.text for answer, _ in answered}
    is_cut = any(answer.finish_reason == "length" for answer, _ in answered)
    faults = [fault for _, fault in answered if fault is not None]
    return Meaning(
        text=json.dumps(texts, ensure_ascii=False),
        finish_reason="length" if is_cut else "stop",
        stop_reason=None,
        answers=tuple(answer for answer, fault in answered if fault is None),
        fault=faults[0] if faults else None,
    )
