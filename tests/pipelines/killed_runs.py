"""Runs in child processes of a fork server, which die at a chosen storage call.

The server imports the pipeline once and starts no thread, so that a child is there in
milliseconds and shares nothing that a fork could break.
"""

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from typing import Any

from pipelines.engines import EchoEngine
from pipelines.run import run
from pipelines.storage import Store, open_store
from pipelines.tools import Tools
from schemas.checkpoints import Checkpoint
from schemas.job_spec import parse_job
from schemas.runs import RunReport
from tests.faults import CrashingStore


@dataclass(frozen=True)
class Case:
    """A job over stored prompts, in values that a child process can be given."""

    job: Mapping[str, Any]
    checkpoint: Checkpoint
    options: Mapping[str, str]

    def run(self, *, die_before: int | None = None, die_after: int | None = None) -> RunReport:
        """Run the job with the echo engine; storage call number n kills the process."""
        return self._run(lambda store: CrashingStore(store, die_before, die_after))

    def counted(self) -> tuple[RunReport, int]:
        """Run the job to its end; return the report and its number of storage calls."""
        made: list[CrashingStore] = []
        report = self._run(lambda store: made.append(CrashingStore(store)) or made[-1])
        return report, made[0].num_calls

    def store(self, uri: str) -> Store:
        """Return the store at this URI."""
        return open_store(uri, options=self.options, deadline_s=30)

    def _run(self, wrapped: Any) -> RunReport:
        tools = Tools(
            checkpoint=lambda _job: self.checkpoint,
            context_length=lambda _job, _checkpoint: 512,
            open_engine=lambda need: EchoEngine(max_model_len=need.context_length, max_num_seqs=8),
            engine="echo",
            open_output=lambda uri: wrapped(self.store(uri)),
        )
        return run(parse_job(dict(self.job), source="case"), tools)


def server() -> ForkServerContext:
    """Return the context of a fork server that has the pipeline imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.pipelines.killed_runs"])
    return context


def die(case: Case, die_before: int | None, die_after: int | None) -> None:
    """Run in a child: where no call kills it, it ends by itself."""
    case.run(die_before=die_before, die_after=die_after)
