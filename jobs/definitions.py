"""What Dagster loads: a table of contents of the job files, job by job.

One job file that does not load is one asset that says why; the others are not concerned.
"""

from pathlib import Path

import dagster as dg

from jobs.assets import assets_of
from jobs.broken import broken_asset
from jobs.checks import checks_of
from jobs.job_files import job_paths, load_job
from jobs.metadata import JOB_TAG
from jobs.resources import Machine
from jobs.schedules import schedules_of
from jobs.settings import Settings, read_settings
from schemas.errors import SettingsError
from schemas.job_spec import JobSpec

# One step at a time, each in a process of its own: an engine never shares its device with the
# next step, and Dagster's Terminate stops a step without pretending that it succeeded.
ONE_STEP_AT_A_TIME = dg.multiprocess_executor.configured({"max_concurrent": 1})


def definitions_of(settings: Settings) -> dg.Definitions:
    """Return everything that Dagster shows of this installation.

    Raises:
        SettingsError: a folder of job files is not there, or two files have the same name.
    """
    machine = Machine.of(settings)
    paths = job_paths(settings.job_folders)
    return dg.Definitions.merge(
        dg.Definitions(executor=ONE_STEP_AT_A_TIME),
        *(_of_file(path, machine) for path in paths.values()),
    )


def _of_file(path: Path, machine: Machine) -> dg.Definitions:
    try:
        found = _of_job(load_job(path), machine)
        # Each job by itself: Dagster looks at some things, such as names, only when it has all.
        dg.Definitions.validate_loadable(found)
    except (SettingsError, OSError, dg.DagsterInvalidDefinitionError) as error:
        dg.get_dagster_logger().error(f"job file {path} is not loaded: {error}")
        return dg.Definitions(assets=[broken_asset(path.stem, str(error))])
    return found


def _of_job(job: JobSpec, machine: Machine) -> dg.Definitions:
    return dg.Definitions(
        assets=assets_of(job),
        asset_checks=checks_of(job),
        jobs=[
            dg.define_asset_job(
                name=job.name,
                selection=dg.AssetSelection.groups(job.name),
                description=job.description or None,
                tags={JOB_TAG: job.name},
            )
        ],
        schedules=schedules_of(job),
        resources={"machine": machine},
    )


defs = definitions_of(read_settings())
