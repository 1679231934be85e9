"""What came out: runs of each contender, medians and spread, as JSON beside the page."""

import json
from dataclasses import asdict, dataclass, field
from math import floor
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one contender; `num_correct` where right answers are known."""

    load_s: float
    seconds: float
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_output_tokens: int
    num_correct: int | None = None
    details: dict[str, float | None] = field(default_factory=dict)

    @property
    def tokens_per_s(self) -> float:
        """Prompt + output tokens a second, cached prompt tokens among them."""
        return (self.num_prompt_tokens + self.num_output_tokens) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All runs of one contender, or why there are none."""

    name: str
    title: str
    weights: str
    runs: tuple[Run, ...] = ()
    failure: str | None = None

    @property
    def seconds(self) -> float | None:
        """The median of its runs' seconds."""
        return median(run.seconds for run in self.runs) if self.runs else None

    def detail(self, name: str) -> float | None:
        """Return the median of one figure; None where no run has it."""
        known = [value for run in self.runs if (value := run.details.get(name)) is not None]
        return median(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload's outcomes and the conditions they came about in.

    `conditions` are texts by name: machine, versions, date, commit.
    """

    workload: str
    title: str
    num_rows: int
    num_asks: int
    conditions: dict[str, str]
    outcomes: tuple[Outcome, ...]

    def outcome(self, name: str) -> Outcome | None:
        """Return the outcome of the contender with this name, if it took part."""
        return next((one for one in self.outcomes if one.name == name), None)

    def speedup(self, over: str, of: str = "promptmill") -> float | None:
        """Return how many times faster `of` was than `over`, by medians of seconds."""
        quick, slow = self.outcome(of), self.outcome(over)
        if quick is None or slow is None or quick.seconds is None or slow.seconds is None:
            return None
        return slow.seconds / quick.seconds


def rounded_down(value: float, digits: int = 2) -> float:
    """Return `value` rounded down: a result is not rounded in our favour."""
    return floor(value * 10**digits) / 10**digits


def write(result: Result, folder: Path) -> None:
    """Write the result as `<workload>.json`, in place of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=1)
    (folder / f"{result.workload}.json").write_text(f"{text}\n", "utf-8")


def read(folder: Path) -> tuple[Result, ...]:
    """Return all results of a folder, by workload."""
    return tuple(
        _result(json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("w*.json"))
    )


def _result(fields: dict[str, object]) -> Result:
    outcomes = fields.pop("outcomes")
    return Result(outcomes=tuple(map(_outcome, outcomes)), **fields)  # type: ignore[arg-type]


def _outcome(fields: dict[str, object]) -> Outcome:
    runs = fields.pop("runs")
    return Outcome(runs=tuple(Run(**run) for run in runs), **fields)  # type: ignore[arg-type]
