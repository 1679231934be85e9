"""How tokens are drawn: presets, overrides, and columns that override per row."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from schemas.requests import SamplingSettings

Preset = Literal["precise", "chat", "code", "creative"]

PRESETS: dict[Preset, dict[str, float]] = {
    "precise": {"temperature": 0.0, "top_p": 1.0},
    "chat": {"temperature": 0.7, "top_p": 0.9},
    "code": {"temperature": 0.2, "top_p": 0.95},
    "creative": {"temperature": 1.0, "top_p": 0.95},
}
"""Every field that a preset sets; `max_tokens` is 256 in all of them."""

DEFAULT_MAX_TOKENS = 256

_Number = Field(strict=False, allow_inf_nan=False)


class OverrideColumns(BaseModel):
    """Columns whose values override a setting for their row; null leaves the job's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_tokens: str | None = None
    temperature: str | None = None
    seed: str | None = None


class Sampling(BaseModel):
    """Sampling settings of a job: a preset, and whatever it overrides."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    preset: Preset = "precise"
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: Annotated[float, _Number, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, _Number, Field(gt=0.0, le=1.0)] | None = None
    top_k: int = Field(default=0, ge=0, description="0 for all tokens")
    min_p: Annotated[float, _Number, Field(ge=0.0, le=1.0)] = 0.0
    repetition_penalty: Annotated[float, _Number, Field(gt=0.0, le=2.0)] = 1.0
    presence_penalty: Annotated[float, _Number, Field(ge=-2.0, le=2.0)] = 0.0
    frequency_penalty: Annotated[float, _Number, Field(ge=-2.0, le=2.0)] = 0.0
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: tuple[str, ...] = Field(default=(), max_length=16)
    ignore_eos: bool = False
    columns: OverrideColumns = OverrideColumns()

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        return tuple(value) if isinstance(value, list) else value

    def settings(self) -> SamplingSettings:
        """Return the settings with the preset's values where the file names none."""
        preset = PRESETS[self.preset]
        return SamplingSettings(
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            temperature=preset["temperature"] if self.temperature is None else self.temperature,
            top_p=preset["top_p"] if self.top_p is None else self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
        )
