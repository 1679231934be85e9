"""How a job's input is divided: by day, or by names; and the base of a job file's sections."""

import re
from datetime import date
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas.errors import SettingsError
from schemas.names import nearest


class Section(BaseModel):
    """A part of a job file: frozen, no unknown keys, no silent conversion of text to numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Daily(Section):
    """One partition per day from `start` on; keys look like 2026-11-01."""

    start: date
    end: date | None = Field(default=None, description="last day, inclusive")

    @field_validator("start", "end", mode="before")
    @classmethod
    def _iso_text(cls, value: object) -> object:
        return date.fromisoformat(value) if isinstance(value, str) else value


class Partitions(Section):
    """How the input is divided: by day, or by names (a list, or `dynamic`)."""

    daily: Daily | None = None
    named: tuple[str, ...] | Literal["dynamic"] | None = None

    @field_validator("named", mode="before")
    @classmethod
    def _list_to_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.daily is None) == (self.named is None):
            raise ValueError("name exactly one of daily, named")
        return self

    def check(self, partition: str) -> None:
        """Return if there is such a partition; any name is one of `dynamic`.

        Raises:
            SettingsError: it is no day, outside the days, or not one of the names.
        """
        if self.daily is not None:
            last = self.daily.end or date.max
            if not _DAY.fullmatch(partition) or not self.daily.start <= _day(partition) <= last:
                until = "" if self.daily.end is None else f" to {self.daily.end}"
                raise SettingsError(
                    f"no partition {partition!r}: days look like 2026-11-01 and go from "
                    f"{self.daily.start}{until}"
                )
        elif self.named != "dynamic" and partition not in (self.named or ()):
            raise SettingsError(f"no partition `{partition}`{nearest(partition, self.named or ())}")


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f"no partition {text!r}: there is no such day") from error
