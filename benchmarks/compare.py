"""promptmill beside what a user would pick: same model, same rows, alternating, medians.

    python -m benchmarks.compare [w1 ... w5] [--rows N] [--repeats N] [--contenders a,b]

One repetition runs every contender once, each in a fresh process with its own environment; the
next repetition begins with the next contender. Results go to `--results` as JSON, and the page
beside that folder is made anew from all that lies in it.
"""

import argparse
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

from benchmarks import page, results
from benchmarks.conditions import conditions
from benchmarks.contenders.task import Measured, Prompt, Task, read_measured, write_task
from benchmarks.results import Outcome, Result, Run
from benchmarks.roster import (
    BY_NAME,
    CONTENDERS,
    ROOT,
    Contender,
    our_engine,
    plain_engine,
    plain_environment,
)
from benchmarks.workloads import WORKLOADS, DataMissingError, Workload
from jobs.settings import read_settings
from jobs.tools import tools_for
from schemas.job_spec import parse_job

MODEL = "smollm2-135m-instruct"
TIMEOUT_S = 1800.0


class WorkDiffersError(Exception):
    """Two contenders did not do the same work, so their seconds do not compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one contender's process is started, for every repetition alike."""

    contender: Contender
    environment: dict[str, str]
    task: Task


def main() -> None:
    """Measure what the arguments name, and write results and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), choices=[*WORKLOADS])
    parser.add_argument("--rows", type=int, help="rows of each workload")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contenders", help="names with commas: " + ",".join(BY_NAME))
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are ended too
    names = given.contenders.split(",") if given.contenders else list(BY_NAME)
    if unknown := set(names) - set(BY_NAME):
        parser.error(f"no contender {sorted(unknown)}; there are {', '.join(BY_NAME)}")
    for name in given.workloads:
        choice = WORKLOADS[name]
        try:
            workload = choice.make(given.rows or choice.num_rows)
        except DataMissingError as error:
            print(f"{name}: skipped: {error}", flush=True)
            continue
        chosen = [one for one in CONTENDERS if one.name in names and name in one.workloads]
        result = compare(workload, chosen, repeats=given.repeats)
        results.write(result, given.results)
        text = page.page(results.read(given.results))
        given.results.with_suffix(".md").write_text(text, "utf-8")
        print(page.page([result]), flush=True)


def compare(workload: Workload, contenders: list[Contender], *, repeats: int) -> Result:
    """Return how each contender answered the workload, `repeats` times.

    A contender that fails once is not run again; the others are.

    Raises:
        WorkDiffersError: see `check_same_work`.
    """
    measured: dict[str, list[Measured]] = {one.name: [] for one in contenders}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="promptmill-bench-") as name:
        starts = [start(workload, one, Path(name, one.name)) for one in contenders]
        stated = conditions(repeats)
        for turn in range(repeats):
            first = turn % len(starts)
            for one in starts[first:] + starts[:first]:
                contender = one.contender.name
                if contender in failures:
                    continue
                try:
                    measured[contender].append(run(one))
                except (RuntimeError, OSError) as error:
                    failures[contender] = str(error)
                print(_line(workload, contender, measured, failures), flush=True)
    check_same_work(workload, measured)
    return Result(
        workload=workload.name,
        title=workload.title,
        num_rows=workload.table.num_rows,
        num_asks=len(workload.asks),
        conditions=stated,
        outcomes=tuple(
            Outcome(
                name=one.name,
                title=one.title,
                weights=one.weights,
                runs=tuple(_run(workload, run) for run in measured[one.name]),
                failure=failures.get(one.name),
            )
            for one in contenders
        ),
    )


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


def check_same_work(workload: Workload, measured: dict[str, list[Measured]]) -> None:
    """Return if all contenders answered all rows, with as many tokens where those are fixed.

    Raises:
        WorkDiffersError: one did not; the message names it with both figures.
    """
    rows = {ask.row for ask in workload.asks}
    num_output = sum(ask.max_tokens for ask in workload.asks)
    num_prompt = {
        one.num_prompt_tokens
        for name in ("llm-defaults", "llm-ours")
        for one in measured.get(name, [])
    }
    for name, runs in measured.items():
        for one in runs:
            missing = rows - one.answers.keys()
            if missing:
                raise WorkDiffersError(f"{name} left {len(missing)} of {len(rows)} unanswered")
            if workload.is_fixed_length and one.num_output_tokens != num_output:
                raise WorkDiffersError(
                    f"{name} made {one.num_output_tokens} output tokens, expected {num_output}"
                )
            is_same = workload.is_same_prompt and not workload.num_repeated
            if is_same and num_prompt and one.num_prompt_tokens not in num_prompt:
                raise WorkDiffersError(
                    f"{name} had {one.num_prompt_tokens} prompt tokens, LLM.generate {num_prompt}"
                )


def _run(workload: Workload, measured: Measured) -> Run:
    """Return the run as it is kept: with the number of right answers, without the answers."""
    known = [ask for ask in workload.asks if ask.expected is not None]
    right = sum(measured.answers[ask.row].strip() == ask.expected for ask in known)
    return Run(
        load_s=measured.load_s,
        seconds=measured.seconds,
        num_prompt_tokens=measured.num_prompt_tokens,
        num_cached_tokens=measured.num_cached_tokens,
        num_output_tokens=measured.num_output_tokens,
        num_correct=right if known else None,
        details=measured.details,
    )


def _line(
    workload: Workload,
    contender: str,
    measured: dict[str, list[Measured]],
    failures: dict[str, str],
) -> str:
    if contender in failures:
        return f"{workload.name} {contender}: {failures[contender]}"
    one = measured[contender][-1]
    return f"{workload.name} {contender}: {one.seconds:.1f} s, load {one.load_s:.1f} s"


if __name__ == "__main__":
    main()
