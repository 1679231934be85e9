"""`promptmill run` of several jobs or partitions: one after the other, with one engine.

Each is a run of its own, with its own output and bill. One that fails does not stop the others.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.commands.choice import Choice, chosen_job
from jobs.commands.ending import Ending
from jobs.commands.partition_ranges import partitions_named
from jobs.commands.running import new_log, run_job, run_once
from jobs.commands.texts import count, grid, rate, seconds, usd
from jobs.display import Display, display
from jobs.rejects import too_many_rejects
from jobs.settings import Settings, read_settings
from schemas.errors import PromptmillError, SettingsError
from schemas.job_spec import JobSpec
from schemas.runs import RunReport

if TYPE_CHECKING:
    from rich.console import Console


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """One run that ended: its report, or why there is none; `fault` also for too many rejects."""

    choice: Choice
    job: JobSpec
    report: RunReport | None
    fault: PromptmillError | None

    @property
    def name(self) -> str:
        partition = self.choice.partition
        return self.job.name if partition is None else f"{self.job.name} {partition}"

    def fields(self) -> dict[str, object]:
        found = {} if self.report is None else dataclasses.asdict(self.report)
        told = {} if self.fault is None else _told(self.fault)
        return {"job": self.job.name, "partition": self.choice.partition, **found, **told}


def run_jobs(choices: Sequence[Choice]) -> Ending:
    """Run every choice to its end, in order; one alone ends as it would by itself.

    A choice whose partition is a range becomes one run for each partition in it.

    Raises:
        SettingsError: one of them cannot be run; then none was.
        PromptmillError: of a single run.
    """
    settings = read_settings()
    notes: list[str] = []
    every = [one for choice in choices for one in _expanded(choice, settings, notes)]
    if len(every) == 1 and not notes:
        return run_job(every[0])
    jobs = [chosen_job(one, settings) for one in every]
    if len({one.engine_kind(settings) for one in every}) > 1:
        raise SettingsError("several runs have one engine: name one with --engine")
    with display() as shown:
        for note in notes:
            shown.note(note)
        done = _run_all(list(zip(every, jobs, strict=True)), settings, shown)
    return _ending(done)


def _expanded(choice: Choice, settings: Settings, notes: list[str]) -> list[Choice]:
    from jobs.job_files import find_job, load_job

    if choice.partition is None:
        return [choice]
    job = load_job(find_job(choice.job, settings.job_folders), choice.as_overrides())
    found, missing = partitions_named(job, choice.partition)
    if missing:
        notes.append(f"{job.name}: there is no input for {', '.join(missing)}")
    return [dataclasses.replace(choice, partition=partition) for partition in found]


def _run_all(
    runs: Sequence[tuple[Choice, JobSpec]], settings: Settings, shown: Display
) -> list[_Done]:
    from jobs.tools import engine_pool

    done: list[_Done] = []
    kind = runs[0][0].engine_kind(settings)
    log = new_log(settings, shown)
    with engine_pool(settings, engine=kind, on_note=shown.note, engine_log=log) as pool:
        for number, (choice, job) in enumerate(runs, start=1):
            pool.num_runs_left = len(runs) - number
            report = fault = None
            try:
                report = run_once(choice, job, settings, shown, pool)
                fault = too_many_rejects(report, job.limits.max_rejects)
            except PromptmillError as error:
                fault = error
            done.append(_Done(choice=choice, job=job, report=report, fault=fault))
            how = "is done" if fault is None else f"failed: {fault}"
            shown.note(f"{number} of {len(runs)}: {done[-1].name} {how}")
    return done


def _ending(done: Sequence[_Done]) -> Ending:
    failed = [one for one in done if one.fault is not None]

    def show(console: "Console") -> None:
        columns = ("run", "rows", "rejects", "load", "generate", "speed", "USD", "ended")
        console.print(grid(columns, [_row(one) for one in done]))
        for one in done:
            if one.report is not None:
                console.print(f"outputs: {one.report.run_uri}", soft_wrap=True)

    fields: dict[str, object] = {
        "runs": [one.fields() for one in done],
        "num_failed": len(failed),
    }
    return Ending(fields=fields, show=show, fault=_first_fault(failed, len(done)))


def _row(done: _Done) -> list[str]:
    code = 0 if done.fault is None else done.fault.exit_code
    report = done.report
    if report is None:
        return [done.name, "-", "-", "-", "-", "-", "-", f"exit {code}"]
    return [
        done.name,
        count(report.num_rows),
        count(report.num_rejects),
        seconds(report.load_s),
        seconds(report.generate_s),
        rate(report.total_tokens_per_s),
        usd(report.usd),
        "well" if code == 0 else f"exit {code}",
    ]


def _told(fault: PromptmillError) -> dict[str, object]:
    return {"error": str(fault), "exit_code": fault.exit_code}


def _first_fault(failed: Sequence[_Done], num_runs: int) -> PromptmillError | None:
    """Return what the command ends with: the first fault, and how many there are."""
    if not failed or failed[0].fault is None:
        return None
    first = failed[0].fault
    told = f"{len(failed)} of {num_runs} runs did not end well; first {failed[0].name}: {first}"
    return type(first)(told)
