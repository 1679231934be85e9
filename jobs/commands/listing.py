"""`promptmill jobs`: the job files that are found, also those that do not load."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commands.ending import Ending, printable
from jobs.commands.texts import count, grid
from jobs.settings import read_settings
from schemas.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import Console

    from schemas.job_spec import JobSpec

_COLUMNS = ("job", "partitions", "schedule", "model", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """One job file; `error` says why it does not load, and then little else is known."""

    name: str
    path: str
    description: str | None = None
    partitions: str | None = None
    schedule: str | None = None
    model: str | None = None
    weights: str | None = None
    error: str | None = None


def list_jobs() -> Ending:
    """Return the job files in the folders of the settings, by name.

    Raises:
        SettingsError: a folder is missing, or two files have the same name.
    """
    from jobs.job_files import job_paths

    paths = job_paths(read_settings().job_folders)
    jobs = [_listed(name, path) for name, path in sorted(paths.items())]
    return Ending(
        fields={"jobs": [asdict(job) for job in jobs]}, show=lambda console: _show(console, jobs)
    )


def _listed(name: str, path: Path) -> ListedJob:
    from jobs.job_files import load_job

    try:
        job = load_job(path)
    except SettingsError as error:
        return ListedJob(name=name, path=str(path), error=str(error))
    return ListedJob(
        name=name,
        path=str(path),
        description=job.description,
        partitions=_partitions(job),
        schedule=None if job.schedule is None else f"{job.schedule.cron} {job.schedule.timezone}",
        model=job.model.id,
        weights=job.model.weights,
    )


def _partitions(job: "JobSpec") -> str | None:
    if job.partitions is None:
        return None
    daily, named = job.partitions.daily, job.partitions.named
    if daily is not None:
        return f"daily from {daily.start}" + (f" to {daily.end}" if daily.end else "")
    return "dynamic" if named == "dynamic" else ", ".join(named or ())


def _show(console: "Console", jobs: list[ListedJob]) -> None:
    rows = [
        (
            job.name,
            job.partitions or "-",
            job.schedule or "-",
            f"{job.model} {job.weights}",
            job.description or "",
        )
        for job in jobs
        if job.error is None
    ]
    console.print(grid(_COLUMNS, rows, num_texts=len(_COLUMNS)))
    broken = [job for job in jobs if job.error is not None]
    for job in broken:
        console.print(f"broken: {job.name}: {printable(job.error or '')}", soft_wrap=True)
    console.print(f"{count(len(rows))} jobs, {count(len(broken))} broken")
