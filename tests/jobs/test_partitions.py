"""How Dagster divides what a job file divides."""

import dagster as dg

from jobs.definitions import definitions_of
from tests.jobs.small_jobs import NAME, settings_of, write_job, write_partitioned_job


def partitions_of(definitions: dg.Definitions) -> dg.PartitionsDefinition | None:
    found = {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}
    assert {spec.partitions_def for spec in found.values()} == {found["plan"].partitions_def}
    return found["generations"].partitions_def


def test_daily_partitions_go_from_the_first_day_to_the_last_inclusive(tmp_path):
    write_partitioned_job(tmp_path, {"daily": {"start": "2026-03-27", "end": "2026-03-30"}})

    partitions = partitions_of(definitions_of(settings_of(tmp_path)))

    assert partitions is not None
    assert partitions.get_partition_keys() == [f"2026-03-{day}" for day in (27, 28, 29, 30)]


def test_days_begin_in_the_timezone_of_the_schedule(tmp_path):
    write_partitioned_job(
        tmp_path,
        {"daily": {"start": "2026-03-27"}},
        schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
    )

    partitions = partitions_of(definitions_of(settings_of(tmp_path)))

    assert isinstance(partitions, dg.DailyPartitionsDefinition)
    assert partitions.timezone == "Europe/Berlin"


def test_named_partitions_are_the_names_of_the_list(tmp_path):
    write_partitioned_job(tmp_path, {"named": ["north", "south"]})

    partitions = partitions_of(definitions_of(settings_of(tmp_path)))

    assert isinstance(partitions, dg.StaticPartitionsDefinition)
    assert partitions.get_partition_keys() == ["north", "south"]


def test_dynamic_partitions_carry_the_name_of_the_job(tmp_path):
    write_partitioned_job(tmp_path, {"named": "dynamic"})

    partitions = partitions_of(definitions_of(settings_of(tmp_path)))

    assert isinstance(partitions, dg.DynamicPartitionsDefinition)
    assert partitions.name == NAME


def test_an_input_that_is_not_divided_has_no_partitions(tmp_path):
    write_job(tmp_path)

    assert partitions_of(definitions_of(settings_of(tmp_path))) is None
