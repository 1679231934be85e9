"""Fixtures of the command line's tests."""

from tests.jobs.command_line import promptmill

__all__ = ["promptmill"]
