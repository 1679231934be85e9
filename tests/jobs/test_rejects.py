import pytest

from jobs.rejects import too_many_rejects
from schemas.runs import RunReport


def report(num_rows: int, **rejects: int) -> RunReport:
    num_rejects = sum(rejects.values())
    zeros = dict.fromkeys(RunReport.__slots__, 0)
    return RunReport(
        **{
            **zeros,
            "run_key": "run1-x",
            "run_uri": "out",
            "num_rows": num_rows,
            "num_generations": num_rows - num_rejects,
            "num_rejects": num_rejects,
            "rejects_by_code": rejects,
        }
    )


@pytest.mark.parametrize(
    ("found", "allowed", "is_too_many"),
    [
        (report(100, NULL_PROMPT=2), 0.02, False),
        (report(100, NULL_PROMPT=3), 0.02, True),
        (report(100, NULL_PROMPT=99), None, False),
        (report(100, NOT_TEXT=100), None, True),
        (report(0), None, False),
        (report(0), 0.0, False),
        (report(1000, FILE_UNREADABLE=1), 0.5, True),
        (report(1000, FILE_UNREADABLE=1), 1.0, False),
    ],
)
def test_rejects_are_too_many_above_the_limit(found, allowed, is_too_many):
    assert (too_many_rejects(found, allowed) is not None) == is_too_many
