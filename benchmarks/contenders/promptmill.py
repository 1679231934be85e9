"""promptmill itself: one run of a job, as `promptmill run` makes it.

In `seconds`: finding the input, planning (reading, templates, tokenizing, ordering, writing the
plan), generation, commits, the manifest, lineage and the pointer to the run. Left out: loading
the engine, waited for at once, so that nothing else is done meanwhile.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import polars as pl

from benchmarks.contenders.task import STARTED_S, Measured, Task, read_task, write_measured
from benchmarks.steps import min_steps, tail_fraction
from jobs.settings import read_settings
from jobs.tools import tools_for
from pipelines.attempt_log import read_attempts
from pipelines.engines import Engine
from pipelines.run import run
from pipelines.storage import open_store
from schemas.commits import AttemptEnd
from schemas.job_spec import parse_job
from schemas.requests import EngineFacts, Poll, StepStats
from schemas.runs import RunReport


class WatchedEngine:
    """An engine that notes every step and the lengths of all answers; else the one it holds."""

    def __init__(self, engine: Engine) -> None:
        """Watch `engine`."""
        self._engine = engine
        self.steps: list[StepStats] = []
        self.output_lengths: list[int] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the engine has)
        """Return what the engine has by this name."""
        return getattr(self._engine, name)

    def poll(self, timeout_s: float) -> Poll:
        """Return the engine's poll, noted."""
        poll = self._engine.poll(timeout_s)
        self.steps += poll.steps
        self.output_lengths += [len(answer.token_ids) for answer in poll.answers]
        return poll


class Watch:
    """Opens engines, and waits until they are loaded before anything else is done."""

    def __init__(self, open_engine: Callable[..., Engine]) -> None:
        """Open engines with `open_engine`."""
        self._open_engine = open_engine
        self.engines: list[WatchedEngine] = []

    def open(self, *given: Any, **named: Any) -> Engine:  # noqa: ANN401 (the tools' own)
        """Return a loaded engine."""
        engine = WatchedEngine(self._open_engine(*given, **named))
        self.engines.append(engine)
        _ = engine.facts
        return engine  # type: ignore[return-value]


def main() -> None:
    """Run the job once over the task's rows and write the figures."""
    task = read_task()
    job = parse_job(task.job, source="benchmark")
    tools = tools_for(read_settings())
    watch = Watch(tools.open_engine)
    began_s = time.monotonic()
    report = run(job, dataclasses.replace(tools, open_engine=watch.open))
    ended_s = time.monotonic()
    if report.num_rejects:
        raise SystemExit(f"{report.num_rejects} rows were rejected: {report.rejects_by_code}")
    (bill,) = read_attempts(open_store(report.run_uri)).ends
    write_measured(
        task,
        Measured(
            load_s=began_s - STARTED_S + bill.load_s,
            seconds=ended_s - began_s - bill.load_s,
            num_prompt_tokens=report.num_prompt_tokens,
            num_cached_tokens=report.num_cached_tokens,
            num_output_tokens=report.num_output_tokens,
            answers=_answers(task, report),
            details=_details(watch.engines, report, bill),
        ),
    )


def _answers(task: Task, report: RunReport) -> dict[str, str]:
    """Return the answers of all rows by row; where a row has questions, by row/question."""
    rows = pl.read_parquet(f"{report.run_uri}/generations/*.parquet")
    if "questions" not in task.job:
        column = "label" if task.choices else "text"
        return dict(rows.select("row_key", column).iter_rows())
    return {
        f"{row_key}/{answer['question']}": answer["text"]
        for row_key, answers in rows.select("row_key", "answers").iter_rows()
        for answer in answers
    }


def _details(
    engines: list[WatchedEngine], report: RunReport, bill: AttemptEnd
) -> dict[str, float | None]:
    """Return what only promptmill knows of its run."""
    steps = [step for engine in engines for step in engine.steps]
    lengths = [length for engine in engines for length in engine.output_lengths]
    facts: EngineFacts = engines[0].facts
    generate_s = bill.wall_s - bill.load_s
    lineage = pl.read_parquet(f"{report.run_uri}/lineage.parquet")
    return {
        "num_steps": len(steps),
        "min_steps": min_steps(
            lengths,
            sum(work.num_prefill_tokens for step in steps for work in step.work),
            max_num_seqs=facts.max_num_seqs,
            max_num_batched_tokens=int(facts.settings["max_num_batched_tokens"]),
        ),
        "plan_s": report.wall_s - bill.wall_s,
        "idle_fraction": bill.idle_s / generate_s,
        "tail_idle_fraction": bill.tail_idle_s / generate_s,
        "tail_fraction": tail_fraction(steps),
        "num_preemptions": sum(step.num_preemptions for step in steps),
        "num_requests": report.num_requests,
        "forecast_s": report.forecast.seconds if report.forecast else None,
        "forecast_error": report.forecast_error,
        "fraction_of_limit": _mean(lineage, "fraction_of_limit"),
    }


def _mean(lineage: pl.DataFrame, column: str) -> float | None:
    """Return the column's mean over batches, weighted by their device-seconds."""
    if column not in lineage.columns:
        return None
    known = lineage.filter(pl.col(column).is_not_null())
    device_s = known["device_s"].sum()
    return (known[column] * known["device_s"]).sum() / device_s if device_s else None


if __name__ == "__main__":
    main()
