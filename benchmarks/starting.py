"""One contender, once: a fresh process with its own environment, and what it measured."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.contenders.task import Measured, Prompt, Task, read_measured, write_task
from benchmarks.data_sets import ROOT
from benchmarks.roster import Contender, our_engine, plain_engine, plain_environment
from benchmarks.workloads import Workload
from jobs.settings import read_settings
from jobs.tools import tools_for
from schemas.job_spec import parse_job

MODEL = "smollm2-135m-instruct"
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one contender's process is started, for every repetition alike."""

    contender: Contender
    environment: dict[str, str]
    task: Task


def start(workload: Workload, contender: Contender, folder: Path) -> Start:
    """Return how to start this contender, with its rows written into `folder`."""
    from transformers import AutoTokenizer

    folder.mkdir()
    pq.write_table(workload.table, folder / "rows.parquet")
    fields = _job(workload, contender, folder)
    job = parse_job(fields, source="benchmark")
    checkpoint = tools_for(read_settings(), on_note=print).checkpoint(job)
    environment, engine = plain_environment(), plain_engine(contender)
    if contender.setting == "ours":
        environment, engine = our_engine(job)
        if not workload.is_same_prompt:
            del engine["max_model_len"]  # it fits the job's prompts, and these are longer
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.path)
    prompts = [
        Prompt(
            row=ask.row,
            text=tokenizer.apply_chat_template(
                ask.messages(), tokenize=False, add_generation_prompt=True
            ),
            messages=ask.messages(),
            max_tokens=ask.max_tokens,
        )
        for ask in workload.asks
    ]
    task = Task(
        model=checkpoint.path,
        folder=str(folder),
        prompts=prompts,
        is_fixed_length=workload.is_fixed_length,
        choices=list(workload.choices),
        engine=engine,
        job=fields,
    )
    return Start(contender=contender, environment=environment, task=task)


def _job(workload: Workload, contender: Contender, folder: Path) -> dict[str, Any]:
    """Return the job file with which promptmill answers the rows in `folder`."""
    return {
        **workload.job,
        "name": f"bench_{workload.name}",
        "model": {"id": MODEL, "weights": contender.weights},
        "input": {"uri": str(folder / "rows.parquet"), "id_column": "id"},
        "output": {**workload.output, "uri": str(folder / "out")},
    }


def run(start: Start) -> Measured:
    """Return what a fresh process of this contender measured.

    Raises:
        RuntimeError: it failed, ran too long, or is not installed; the message says which.
    """
    python = start.contender.python or Path(sys.executable)
    if not python.exists():
        raise RuntimeError("not installed (make bench-setup)")
    folder = Path(start.task.folder)
    (folder / "measured.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [str(python), "-m", f"benchmarks.contenders.{start.contender.script}"]
    with (folder / "log.txt").open("wb") as log:
        child = subprocess.Popen(
            [*command, str(write_task(start.task))],
            cwd=ROOT,
            env=start.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(child)
    if code is None:
        raise RuntimeError(f"not done after {TIMEOUT_S:.0f} s")
    if code != 0:
        kept = Path(tempfile.gettempdir(), f"promptmill-bench-{start.contender.name}.log")
        shutil.copyfile(folder / "log.txt", kept)
        raise RuntimeError(f"failed with exit code {code}, see {kept}")
    return read_measured(folder)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End what the child left running in its session: engine processes, Ray's servers."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        time.sleep(1.0)
