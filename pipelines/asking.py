"""What a row asks of the engine, and what its answers mean: text, JSON, or a label."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import jsonschema

from pipelines.chat import ChatTokenizer
from pipelines.labels import LabelTree
from schemas.errors import SettingsError
from schemas.generations import FinishReason
from schemas.job_spec import JobSpec
from schemas.prompts import Fault
from schemas.requests import Answer, SamplingSettings

Ask = tuple[tuple[int, ...], SamplingSettings]
"""One request to the engine: prompt tokens and how to sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a row's answers come to. `fault` is set where they are not acceptable."""

    text: str
    finish_reason: FinishReason
    stop_reason: str | None
    label: str | None = None
    label_probabilities: tuple[tuple[str, float], ...] | None = None
    label_margin: float | None = None
    fault: Fault | None = None


class Asking(Protocol):
    """How a job asks and reads answers."""

    @property
    def num_answer_tokens(self) -> int | None:
        """Output tokens of every answer, where they are fixed; None: max_tokens bounds them."""
        ...

    @property
    def num_asks(self) -> int:
        """Engine requests per row."""
        ...

    def asks(self, prompt: tuple[int, ...], sampling: SamplingSettings) -> list[Ask]:
        """Return what to ask the engine for one row."""
        ...

    def meanings(self, answers: Sequence[Sequence[Answer]]) -> list[Meaning]:
        """Return what the answers of each row mean; each row has `num_asks` of them."""
        ...


def asking_of(job: JobSpec, chat: ChatTokenizer) -> Asking:
    """Return how this job asks.

    Raises:
        SettingsError: its labels cannot be told apart, or its json_schema is no JSON schema.
    """
    if job.output.labels is not None:
        choices = job.output.labels.choices
        tokens = [chat.encode_answer(choice) for choice in choices]
        return AskForLabel(LabelTree(choices, tokens, chat.end_token_id))
    if job.output.json_schema is not None:
        return AskForJson(job.output.json_schema, chat)
    return AskForText(chat)


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

    num_answer_tokens = None
    num_asks = 1

    def __init__(self, chat: ChatTokenizer) -> None:
        """Read answers with the model's own tokenizer."""
        self._chat = chat

    def asks(self, prompt: tuple[int, ...], sampling: SamplingSettings) -> list[Ask]:
        """Return the prompt as it is."""
        return [(prompt, sampling)]

    def meanings(self, answers: Sequence[Sequence[Answer]]) -> list[Meaning]:
        """Return the texts; detokenized on all cores."""
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

    def __init__(self, schema: dict[str, object], chat: ChatTokenizer) -> None:
        """Check the schema itself; see `asking_of` for errors."""
        super().__init__(chat)
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise SettingsError(f"output.json_schema is no JSON schema: {error.message}") from error
        self._validator = jsonschema.Draft202012Validator(schema)
        self._schema_text = json.dumps(schema, sort_keys=True)

    def asks(self, prompt: tuple[int, ...], sampling: SamplingSettings) -> list[Ask]:
        """Return the prompt with the schema as its constraint."""
        return [(prompt, _constrained(sampling, self._schema_text))]

    def meanings(self, answers: Sequence[Sequence[Answer]]) -> list[Meaning]:
        """Return the texts; one that was cut short or does not validate has a fault."""
        return [
            replace(meaning, fault=self._fault(meaning)) for meaning in super().meanings(answers)
        ]

    def _fault(self, meaning: Meaning) -> Fault | None:
        if meaning.finish_reason == "length":
            return Fault("INVALID_OUTPUT", "JSON cut short at max_tokens")
        try:
            found = json.loads(meaning.text)
        except ValueError:
            return Fault("INVALID_OUTPUT", "not JSON")
        error = next(iter(self._validator.iter_errors(found)), None)
        if error is None:
            return None
        return Fault("INVALID_OUTPUT", f"fails the schema at {error.json_path}: {error.validator}")


@lru_cache(maxsize=4096)
def _constrained(sampling: SamplingSettings, schema: str) -> SamplingSettings:
    return replace(sampling, json_schema=schema)


class AskForLabel:
    """One of the job's choices, with a probability for each."""

    def __init__(self, tree: LabelTree) -> None:
        """Ask at every fork of the tree."""
        self._tree = tree
        self._settings = [tree.sampling(fork) for fork in tree.forks]
        self.num_answer_tokens = tree.num_answer_tokens
        self.num_asks = len(tree.forks)

    def asks(self, prompt: tuple[int, ...], sampling: SamplingSettings) -> list[Ask]:
        """Return one one-token request per fork; the row's sampling settings play no part."""
        del sampling
        return [
            (prompt + fork.path, settings)
            for fork, settings in zip(self._tree.forks, self._settings, strict=True)
        ]

    def meanings(self, answers: Sequence[Sequence[Answer]]) -> list[Meaning]:
        """Return the most probable choice of each row; the first of equals."""
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
