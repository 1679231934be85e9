"""Fixtures of the tests of the command line and of Dagster."""

from tests.jobs.command_line import promptmill
from tests.jobs.dagster_runs import instance, model

__all__ = ["instance", "model", "promptmill"]
