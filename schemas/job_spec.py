"""The job file: what its YAML may say, as frozen pydantic models.

Unknown keys are errors that name the nearest right key. What a job file means (defaults,
presets) is decided here; where things lie and when it runs is decided by whoever runs it.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.checkpoints import Weights
from schemas.engine_overrides import EngineOverrides
from schemas.errors import SettingsError
from schemas.names import checked_segment, nearest
from schemas.partitions import Partitions, Section
from schemas.questions import MAX_QUESTIONS, Labels, Question, check_questions, list_as_tuple
from schemas.sampling import Sampling


class Input(Section):
    """Where the prompts lie: one Parquet file, a folder of them, or a glob."""

    uri: str = Field(
        min_length=1, description="local path, s3://, gs:// or abfs://; {partition} is replaced"
    )
    id_column: str | None = Field(
        default=None, description="unique, non-null; else file and row number are the key"
    )


class PromptSource(Section):
    """How a row becomes a prompt: a template, one column, or a column of chat messages."""

    system: str | None = Field(default=None, description="system message, the same for all rows")
    user: str | None = Field(
        default=None, description="sandboxed Jinja template over the row's columns"
    )
    column: str | None = Field(
        default=None, description="a text column that already holds the prompt"
    )
    messages: str | None = Field(default=None, description="a column of lists of {role, content}")
    on_too_long: Literal["reject", "truncate"] = "reject"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = [key for key in ("user", "column", "messages") if getattr(self, key) is not None]
        if len(named) != 1:
            raise ValueError(f"name exactly one of user, column, messages; got {named or 'none'}")
        if self.messages is not None and self.system is not None:
            raise ValueError("system cannot stand beside messages: put it into the messages column")
        return self


class Model(Section):
    """Which model answers, and how its weights are stored."""

    id: str = Field(min_length=1, description="the bundled model, a local folder, or a Hub id")
    revision: str | None = Field(
        default=None, description="for a Hub id: a full commit, never a branch"
    )
    weights: Weights = "int8"
    max_model_len: int | None = Field(
        default=None, ge=16, description="prompt + output tokens of one request"
    )


class Output(Section):
    """Where rows go, and what shape an answer must have."""

    uri: str = Field(default="outputs/{name}/{partition}", min_length=1)
    labels: Labels | None = None
    json_schema: dict[str, object] | None = Field(
        default=None, description="constrained, and validated afterwards"
    )
    keep_invalid_text: bool = Field(
        default=False, description="INVALID_OUTPUT rejects carry the text"
    )
    max_batch_tokens: int | None = Field(
        default=None, ge=1, description="prompt + predicted output tokens per commit"
    )

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.labels is not None and self.json_schema is not None:
            raise ValueError("labels and json_schema exclude each other")
        return self


class Schedule(Section):
    """When runs start."""

    cron: str
    timezone: str = "UTC"


class Price(Section):
    """What a device costs, and a GPU's energy: that is shown beside it, not added."""

    usd_per_device_hour: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)] = 0.0
    usd_per_kwh: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)] | None = None


class Limits(Section):
    """When to stop, and how many rejects are too many."""

    max_usd: Annotated[float, Field(gt=0, strict=False)] | None = None
    max_rejects: Annotated[float, Field(ge=0, le=1, strict=False)] | None = Field(
        default=None, description="share of rows, 0 to 1; above it the run ends with exit code 3"
    )
    deadline: str | None = Field(
        default=None, pattern=r"^\d+(\.\d+)?[smh]$", description="6h, 90m, 30s"
    )

    @property
    def deadline_s(self) -> float | None:
        """The deadline in seconds from the start of the run."""
        if self.deadline is None:
            return None
        return float(self.deadline[:-1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[self.deadline[-1]]


def _or_none_by_name(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"const": "none"})


class JobSpec(Section):
    """One job file."""

    name: str
    description: str = ""
    input: Input
    prompt: PromptSource
    questions: tuple[Question, ...] = Field(
        default=(),
        max_length=MAX_QUESTIONS,
        description="several questions on each row; the template says where: {{ question }}",
    )
    model: Model
    sampling: Sampling = Sampling()
    output: Output = Output()
    partitions: Partitions | None = Field(
        default=None,
        description="`none` for an input that is not divided",
        json_schema_extra=_or_none_by_name,
    )
    schedule: Schedule | None = None
    price: Price = Price()
    limits: Limits = Limits()
    engine: EngineOverrides = EngineOverrides()

    @field_validator("name")
    @classmethod
    def _safe_name(cls, value: str) -> str:
        try:
            checked_segment("name", value)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        if not value.replace("_", "").isalnum() or value[0].isdigit():
            raise ValueError("a job name is letters, digits and `_`, beginning with a letter")
        return value

    _listed = field_validator("questions", mode="before")(list_as_tuple)

    @field_validator("partitions", mode="before")
    @classmethod
    def _none_by_name(cls, value: object) -> object:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _partition_in_uris(self) -> Self:
        holds = "{partition}" in self.input.uri
        if holds and self.partitions is None:
            raise ValueError("input.uri holds {partition}, and the job has no partitions")
        if self.partitions is not None and not holds:
            raise ValueError("the job has partitions, and input.uri does not hold {partition}")
        return self

    @model_validator(mode="after")
    def _questions_alone(self) -> Self:
        if not self.questions:
            return self
        check_questions(self.questions, self.prompt.user)
        if self.output.labels or self.output.json_schema is not None:
            raise ValueError("give each question its choices or json_schema, not output")
        if self.sampling.columns.max_tokens is not None:
            raise ValueError("sampling.columns.max_tokens cannot stand beside questions")
        return self

    def identity(self) -> dict[str, object]:
        """Return what of this file takes part in a run's identity, as JSON values.

        Left out is what changes no answer: where things lie, when it runs, its price and limits.
        """
        left_out = {"description", "partitions", "schedule", "price", "limits", "engine"}
        fields = self.model_dump(mode="json", exclude=left_out)
        fields["input"].pop("uri")
        fields["output"].pop("uri")
        return fields


def parse_job(fields: Mapping[str, object], *, source: str) -> JobSpec:
    """Return the job that these YAML values describe; `source` names them in errors.

    Raises:
        SettingsError: one line per fault: the key, what is wrong, the nearest right key.
    """
    try:
        json.dumps(fields, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError as error:
        raise SettingsError(f"{source}: holds half a character (a lone surrogate)") from error
    try:
        return JobSpec.model_validate(dict(fields))
    except ValidationError as error:
        lines = [_fault_line(fault["loc"], fault["type"], fault["msg"]) for fault in error.errors()]
        raise SettingsError(f"{source}: " + f"\n{source}: ".join(dict.fromkeys(lines))) from error


def _fault_line(location: tuple[str | int, ...], kind: str, message: str) -> str:
    path = ".".join(str(step) for step in location)
    if kind != "extra_forbidden":
        return (
            f"`{path}`: {message.removeprefix('Value error, ')}"
            if path
            else message.removeprefix("Value error, ")
        )
    return f"unknown key `{path}`{nearest(str(location[-1]), _keys_beside(location))}"


def _keys_beside(location: tuple[str | int, ...]) -> list[str]:
    """Return the keys that are known in the section where this unknown key stands."""
    schema = JobSpec.model_json_schema()
    section = schema
    for step in location[:-1]:
        is_list = isinstance(step, int)
        section = section.get("items" if is_list else "properties", {})
        section = section if is_list else section.get(step, {})
        options = [section, *section.get("anyOf", []), *section.get("allOf", [])]
        names = [option["$ref"].rsplit("/", 1)[-1] for option in options if "$ref" in option]
        section = schema["$defs"][names[0]] if names else section
    return list(section.get("properties", {}))
