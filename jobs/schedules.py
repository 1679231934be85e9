"""Schedules: when Dagster starts a job, and for which partitions."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from jobs.metadata import JOB_TAG
from jobs.partitions import partitions_of, timezone_of
from schemas.job_spec import JobSpec


def schedules_of(job: JobSpec) -> list[dg.ScheduleDefinition]:
    """Return the job's schedule, in a list; empty for a job file without one.

    A tick runs the day before it (daily), every name (named), or the one input that there
    is. The schedule is off until somebody turns it on.

    Raises:
        SettingsError: the timezone is not one.
        DagsterInvalidDefinitionError: the cron line is not one.
    """
    if job.schedule is None:
        return []

    @dg.schedule(
        name=f"{job.name}_schedule",
        job_name=job.name,
        cron_schedule=job.schedule.cron,
        execution_timezone=timezone_of(job),
        description=f"Starts {job.name}: {job.schedule.cron}, {job.schedule.timezone}.",
        tags={JOB_TAG: job.name},
    )
    def starts(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        requests = list(_requests(job, context))
        return requests or dg.SkipReason(f"{job.name} has no partition for this tick")

    return [starts]


def _requests(job: JobSpec, context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Yield one request per run; with the same run key Dagster starts a run only once.

    A day is run by the first tick after it; a name, and a job without partitions, by each tick.
    """
    tick = context.scheduled_execution_time
    names: Sequence[str] = ()
    if job.partitions is None:
        yield dg.RunRequest(run_key=tick.isoformat())
    elif job.partitions.daily is not None:
        day = day_before(tick, timezone_of(job))
        partitions = partitions_of(job)
        if partitions is not None and day in partitions.get_partition_keys(current_time=tick):
            yield dg.RunRequest(run_key=day, partition_key=day)
    elif job.partitions.named == "dynamic":
        names = context.instance.get_dynamic_partitions(job.name)
    else:
        names = job.partitions.named or ()
    for name in names:
        yield dg.RunRequest(run_key=f"{name}@{tick.isoformat()}", partition_key=name)


def day_before(tick: datetime, timezone: str) -> str:
    """Return the day before the tick's own day in this timezone, as a partition key.

    By the calendar, not by 24 hours: a day of 23 or 25 hours is one day.
    """
    return (tick.astimezone(ZoneInfo(timezone)).date() - timedelta(days=1)).isoformat()
