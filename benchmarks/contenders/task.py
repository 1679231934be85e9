"""What a contender is told, and what it tells: two JSON files. Imports nothing heavy."""

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STARTED_S = time.monotonic()
"""When this process's own work began; read at import, before anything heavy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One answer that is wanted: the prompt with its chat template applied, and as messages."""

    row: str
    text: str
    messages: list[dict[str, str]]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one contender does once.

    `model` is a folder. `engine` are arguments of vLLM's EngineArgs beside it; none: vLLM's
    defaults. `job` is a job file's content, for promptmill only. `folder` is the contender's
    own, for what it writes.
    """

    model: str
    folder: str
    prompts: list[Prompt]
    is_fixed_length: bool
    choices: list[str]
    engine: dict[str, Any]
    job: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a contender.

    `load_s` runs from the start of the process's own work (imports included) until the model
    could answer, `seconds` from there to the last answer. Prompt tokens include cached ones,
    None where they are not known; output tokens include the end token. `answers` are texts by
    row. `details` are figures that only some contenders have.
    """

    load_s: float
    seconds: float
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_output_tokens: int
    answers: dict[str, str] = field(default_factory=dict)
    details: dict[str, float | None] = field(default_factory=dict)


def write_task(task: Task) -> Path:
    """Write the task into its folder and return the file, the child's only argument."""
    path = Path(task.folder, "task.json")
    path.write_text(json.dumps(asdict(task)), "utf-8")
    return path


def read_task() -> Task:
    """Return the task in the file that this process's first argument names."""
    fields = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    prompts = [Prompt(**prompt) for prompt in fields.pop("prompts")]
    return Task(prompts=prompts, **fields)


def write_measured(task: Task, measured: Measured) -> None:
    """Write what was measured into the task's folder."""
    Path(task.folder, "measured.json").write_text(json.dumps(asdict(measured)), "utf-8")


def read_measured(folder: Path) -> Measured:
    """Return what the child wrote.

    Raises:
        FileNotFoundError: it wrote nothing.
    """
    return Measured(**json.loads((folder / "measured.json").read_text("utf-8")))


def sampling_fields(task: Task, prompt: Prompt) -> dict[str, Any]:
    """Return greedy sampling for this prompt by the names of vLLM's SamplingParams."""
    return {
        "temperature": 0.0,
        "max_tokens": prompt.max_tokens,
        "ignore_eos": task.is_fixed_length,
    }
