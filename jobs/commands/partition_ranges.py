"""Partitions that a command line names: one by one, or as a range of what lies on storage."""

from datetime import date, timedelta

from pipelines.storage import stored_partitions
from schemas.errors import SettingsError
from schemas.job_spec import JobSpec
from schemas.partitions import Daily, Partitions

_RANGE = ".."
_MAX_SHOWN = 12


def partitions_named(job: JobSpec, text: str) -> tuple[list[str], list[str]]:
    """Return the partitions that `text` names, in order, and the days among them without input.

    `A..B` are those from A to B whose input lies on storage, both included; `A..`, `..B` and
    `..` are open. A name that holds `..` itself is taken as that name, if there is such input.

    Raises:
        SettingsError: no input lies in the range, or its ends are no days of a daily job.
    """
    if _RANGE not in text or job.partitions is None:
        return [text], []
    there = stored_partitions(job.input.uri)
    if text in there:
        return [text], []
    first, _, last = text.partition(_RANGE)
    daily = job.partitions.daily
    found = [key for key in there if (not first or first <= key) and (not last or key <= last)]
    if daily is not None:
        for end in filter(None, (first, last)):
            _day(end)
        found = [key for key in found if _is_a_day_of(daily, key)]
    if not found:
        shown = ", ".join(there[-_MAX_SHOWN:]) or "none"
        raise SettingsError(
            f"job {job.name} has no partition from {first or 'the first'} to {last or 'the last'}\n"
            f"  found at {job.input.uri}: {shown}"
        )
    if daily is None:
        return found, []
    days = _days(daily, _day(first or found[0]), _day(last or found[-1]))
    return found, [day for day in days if day not in found]


def _is_a_day_of(daily: Daily, key: str) -> bool:
    try:
        Partitions(daily=daily).check(key)
    except SettingsError:
        return False
    return True


def _days(daily: Daily, first: date, last: date) -> list[str]:
    begin, end = max(first, daily.start), min(last, daily.end or last)
    return [(begin + timedelta(days=n)).isoformat() for n in range((end - begin).days + 1)]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"--partition: {text!r} is no day; days look like 2026-11-01"
        ) from error
