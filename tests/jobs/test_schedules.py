"""When Dagster starts a job, and for which partitions."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from jobs.definitions import definitions_of
from jobs.settings import read_settings
from tests.jobs.small_jobs import NAME, settings_of, write_job, write_partitioned_job

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def samples() -> dg.Definitions:
    """The definitions of promptmill's own two job files."""
    return definitions_of(read_settings({}))


def tick(
    definitions: dg.Definitions, at: datetime, instance: dg.DagsterInstance, job: str = NAME
) -> Any:
    schedule = definitions.resolve_schedule_def(f"{job}_schedule")
    context = dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=at,
        repository_def=definitions.get_repository_def(),
    )
    return schedule.evaluate_tick(context)


def partitions_started(*arguments: object) -> list[str | None]:
    return [request.partition_key for request in tick(*arguments).run_requests or ()]


def test_a_tick_of_a_sample_job_runs_the_day_before_it(samples, instance):
    at = datetime(2026, 11, 4, 2, tzinfo=ZoneInfo("UTC"))

    assert partitions_started(samples, at, instance, "summarize_tickets") == ["2026-11-03"]


@pytest.mark.parametrize(
    ("at", "day"),
    [
        (datetime(2026, 3, 29, 3, tzinfo=BERLIN), "2026-03-28"),  # a day of 23 hours begins
        (datetime(2026, 3, 30, 0, tzinfo=BERLIN), "2026-03-29"),  # and is over
        (datetime(2026, 10, 26, 0, 30, tzinfo=BERLIN), "2026-10-25"),  # after one of 25
        (datetime(2026, 12, 31, 23, 30, tzinfo=ZoneInfo("UTC")), "2026-12-31"),  # 2027 there
        (datetime(2028, 3, 1, 2, tzinfo=BERLIN), "2028-02-29"),
    ],
)
def test_the_day_before_is_a_day_of_the_calendar_in_the_timezone(tmp_path, instance, at, day):
    write_partitioned_job(
        tmp_path,
        {"daily": {"start": "2026-01-01"}},
        schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
    )

    assert partitions_started(definitions_of(settings_of(tmp_path)), at, instance) == [day]


@pytest.mark.parametrize("day", [1, 4])
def test_a_tick_outside_of_the_days_starts_nothing(tmp_path, instance, day):
    write_partitioned_job(
        tmp_path,
        {"daily": {"start": "2026-11-01", "end": "2026-11-02"}},
        schedule={"cron": "0 2 * * *"},
    )
    at = datetime(2026, 11, day, 2, tzinfo=ZoneInfo("UTC"))

    found = tick(definitions_of(settings_of(tmp_path)), at, instance)

    assert not found.run_requests
    assert found.skip_message == f"{NAME} has no partition for this tick"


def test_a_day_is_started_once_however_often_the_schedule_ticks(tmp_path, instance):
    write_partitioned_job(
        tmp_path, {"daily": {"start": "2026-11-01"}}, schedule={"cron": "0 * * * *"}
    )
    definitions = definitions_of(settings_of(tmp_path))

    keys = {
        request.run_key
        for hour in (2, 3)
        for request in tick(
            definitions, datetime(2026, 11, 4, hour, tzinfo=ZoneInfo("UTC")), instance
        ).run_requests
        or ()
    }

    assert keys == {"2026-11-03"}


def test_a_tick_runs_every_name_of_the_list(tmp_path, instance):
    write_partitioned_job(tmp_path, {"named": ["a", "b"]}, schedule={"cron": "0 2 * * *"})
    at = datetime(2026, 11, 4, 2, tzinfo=ZoneInfo("UTC"))

    assert partitions_started(definitions_of(settings_of(tmp_path)), at, instance) == ["a", "b"]


def test_a_tick_runs_every_name_that_was_added(tmp_path):
    write_partitioned_job(tmp_path, {"named": "dynamic"}, schedule={"cron": "0 2 * * *"})
    definitions = definitions_of(settings_of(tmp_path))
    at = datetime(2026, 11, 4, 2, tzinfo=ZoneInfo("UTC"))

    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions(NAME, ["x", "y"])

        assert partitions_started(definitions, at, instance) == ["x", "y"]


def test_a_tick_runs_the_one_input_of_a_job_without_partitions(tmp_path, instance):
    write_job(tmp_path, schedule={"cron": "0 2 * * 1", "timezone": "Europe/Berlin"})

    at = datetime(2026, 11, 2, 2, tzinfo=BERLIN)
    requests = tick(definitions_of(settings_of(tmp_path)), at, instance).run_requests

    assert [(one.partition_key, one.run_key) for one in requests or ()] == [(None, at.isoformat())]
