"""F4, small: processes that run the same job at the same time."""

import pytest

from pipelines.audit import audit
from pipelines.ledger import written_manifest
from tests.pipelines.killed_runs import Case, server
from tests.pipelines.test_crash_sweep import NUM_ROWS, new_case  # noqa: F401 - a fixture


def race(case: Case, barrier) -> None:
    """Run in a child, at the same moment as the others."""
    barrier.wait(60)
    case.run()


@pytest.mark.timeout(600)
def test_two_processes_on_one_partition_make_one_commit_a_batch(new_case):  # noqa: F811
    context = server()

    for number in range(20):
        case = new_case(number)
        barrier = context.Barrier(2)
        racers = [context.Process(target=race, args=(case, barrier)) for _ in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(120)
        assert [racer.exitcode for racer in racers] == [0, 0]

        report = case.run()
        store = case.store(report.run_uri)
        manifest = written_manifest(store)
        assert audit(store).faults == ()
        assert report.num_rows == NUM_ROWS
        assert len(store.list("commits/")) == len(manifest.commits) == report.num_batches
