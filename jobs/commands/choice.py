"""Which job, on what and how: the options of `run` and `plan`, as a job file with overrides."""

import json
from dataclasses import dataclass

from jobs.settings import EngineKind, Settings, engine_kind
from pipelines.identity import input_uri, output_uri
from pipelines.storage import HOLE, expand_input, open_store, stored_partitions
from schemas.errors import SettingsError
from schemas.job_spec import JobSpec
from schemas.names import nearest

_MAX_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was asked for; None leaves it to the job file or the settings."""

    job: str
    partition: str | None = None
    input_uri: str | None = None
    output_uri: str | None = None
    limit: int | None = None
    engine: str | None = None
    model: str | None = None
    weights: str | None = None
    overrides: tuple[str, ...] = ()

    def as_overrides(self) -> tuple[str, ...]:
        """Return the options as `key.path=value`, those of --set last.

        An input without {partition} is one whole. Another model has another revision.
        """
        options = {
            "input.uri": self.input_uri,
            "output.uri": self.output_uri,
            "model.id": self.model,
            "model.weights": self.weights,
        }
        given = [
            f"{key}={json.dumps(value, ensure_ascii=False)}"
            for key, value in options.items()
            if value
        ]
        if self.input_uri is not None and HOLE not in self.input_uri:
            given.append("partitions=none")
        if self.model is not None:
            given.append("model.revision=null")
        return (*given, *self.overrides)

    def engine_kind(self, settings: Settings) -> EngineKind:
        """Return which engine answers.

        Raises:
            SettingsError: there is no such engine.
        """
        return settings.engine if self.engine is None else engine_kind(self.engine)


def chosen_job(choice: Choice, settings: Settings) -> JobSpec:
    """Return the job that was chosen; its input is there and its output can be named.

    Asked before a model's libraries are loaded, which takes seconds.

    Raises:
        SettingsError: no such job, it does not parse, its partition is missing or unknown, or
            its input or output is not at a place that can be opened.
    """
    from jobs.job_files import find_job, load_job

    job = load_job(find_job(choice.job, settings.job_folders), choice.as_overrides())
    if job.partitions is not None:
        _check_partition(job, choice.partition)
    elif choice.partition is not None:
        raise SettingsError(
            f"--partition {choice.partition}: job {job.name} reads all of {job.input.uri}; "
            f"leave the option out, or give --input a URI with {HOLE}"
        )
    expand_input(input_uri(job, choice.partition))
    open_store(output_uri(job, choice.partition))
    return job


def _check_partition(job: JobSpec, partition: str | None) -> None:
    there = stored_partitions(job.input.uri)
    shown = ", ".join(there[-_MAX_SHOWN:])
    found = f"{'…, ' if len(there) > _MAX_SHOWN else ''}{shown}" or "none"
    if partition is None:
        raise SettingsError(
            f"job {job.name} has partitions: name one with --partition\n"
            f"  found at {job.input.uri}: {found}"
        )
    if there and partition not in there:
        hint = nearest(partition, there)
        close = hint if hint.startswith("; did") else ""  # else it repeats every name
        raise SettingsError(
            f"job {job.name} has no partition `{partition}`{close}\n"
            f"  found at {job.input.uri}: {found}"
        )
