"""Partitions: how Dagster divides what the job file divides."""

from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from schemas.errors import SettingsError
from schemas.job_spec import JobSpec
from schemas.names import checked_segment
from schemas.partitions import Daily


def partitions_of(job: JobSpec) -> dg.PartitionsDefinition | None:
    """Return the job's partitions: by day, by name, or None for an input that is not divided.

    Days begin in the schedule's timezone. `named: dynamic` is kept in Dagster's instance under
    the job's name, and names are added there, in the UI or by a sensor.

    Raises:
        SettingsError: the timezone is not one, or a name cannot be part of a key.
    """
    if job.partitions is None:
        return None
    if job.partitions.daily is not None:
        return _daily(job.partitions.daily, timezone_of(job))
    if job.partitions.named == "dynamic":
        return dg.DynamicPartitionsDefinition(name=job.name)
    return dg.StaticPartitionsDefinition(_checked_names(job.partitions.named or ()))


def timezone_of(job: JobSpec) -> str:
    """Return the timezone that the job's days and its schedule are in; UTC without a schedule.

    Raises:
        SettingsError: there is no such timezone.
    """
    name = "UTC" if job.schedule is None else job.schedule.timezone
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise SettingsError(
            f"job {job.name}: `schedule.timezone`: no timezone {name!r}; "
            "expected a name such as UTC or Europe/Berlin"
        ) from error
    return name


def partition_of(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> str | None:
    """Return the partition that this step is about, or None for a job without partitions."""
    return context.partition_key if context.has_partition_key else None


def _daily(daily: Daily, timezone: str) -> dg.DailyPartitionsDefinition:
    # A job file's last day is inclusive, Dagster's end is not.
    end = None if daily.end is None else (daily.end + timedelta(days=1)).isoformat()
    return dg.DailyPartitionsDefinition(
        start_date=daily.start.isoformat(), end_date=end, timezone=timezone
    )


def _checked_names(names: Sequence[str]) -> list[str]:
    if not names:
        raise SettingsError("`partitions.named`: no names; list some, or say `dynamic`")
    if len(set(names)) != len(names):
        raise SettingsError("`partitions.named`: a name stands twice")
    return [checked_segment("`partitions.named`", name) for name in names]
