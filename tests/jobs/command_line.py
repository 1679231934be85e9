"""A job over rows of its own, with a model folder that no engine loads, for the command line."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jobs.cli import app
from tests.jobs.small_jobs import NAME, write_job, write_rows
from tests.pipelines.conftest import write_tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = ["a bug in the report", "billing", "billing", None, "an account"]
NUM_ROWS = len(TEXTS)


@dataclass(frozen=True)
class CommandLine:
    """A folder with a job, its input and a model; the echo engine answers."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "outputs" / NAME

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PROMPTMILL_JOBS": str(self.folder / "jobs"),
            "PROMPTMILL_CACHE": str(self.folder / "cache"),
            "PROMPTMILL_ENGINE": "echo",
            "PYTHONPATH": str(ROOT),
        }

    def write_job(self, name: str = NAME, **changes: Any) -> Path:
        model = {"id": str(self.folder / "model"), "weights": "as_is"}
        sampling = {"max_tokens": 8}
        price = {"usd_per_device_hour": 3.0}
        sections = {"model": model, "sampling": sampling, "price": price, **changes}
        return write_job(self.folder, name, **sections)

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), env=self.environment)

    def script(self, lines: str, *arguments: str) -> list[str]:
        """Return the command of a new process: these lines, then what `promptmill` does."""
        return [sys.executable, "-c", f"{lines}\nfrom jobs.cli import main\nmain()", *arguments]


def command_line(folder: Path) -> CommandLine:
    write_tokenizer(folder / "model")
    (folder / "model" / "model.safetensors").write_bytes(b"weights that nothing loads")
    write_rows(folder, "2026-11-01", TEXTS)
    made = CommandLine(folder)
    made.write_job()
    return made


@pytest.fixture
def promptmill(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


def told(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert result.stdout.count("\n") == 1, result.output
    return json.loads(result.stdout)


def ran(promptmill: CommandLine, *arguments: str) -> dict[str, Any]:
    """The report of a run that ended well."""
    result = promptmill("run", NAME, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return told(result)
