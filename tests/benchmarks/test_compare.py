import dataclasses

import pytest

from benchmarks.compare import WorkDiffersError, check_same_work
from benchmarks.contenders.task import Measured
from benchmarks.workloads import mixed_lengths

WORKLOAD = mixed_lengths(3)
RIGHT = Measured(
    load_s=1.0,
    seconds=1.0,
    num_prompt_tokens=300,
    num_cached_tokens=0,
    num_output_tokens=sum(ask.max_tokens for ask in WORKLOAD.asks),
    answers={ask.row: "said" for ask in WORKLOAD.asks},
)


def differing(**changes) -> dict[str, list[Measured]]:
    return {"llm-defaults": [RIGHT], "promptmill": [dataclasses.replace(RIGHT, **changes)]}


def test_the_same_work_passes():
    check_same_work(WORKLOAD, differing())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": {}}, "promptmill left 3 of 3 unanswered"),
        ({"num_output_tokens": 1}, "promptmill made 1 output tokens, expected"),
        ({"num_prompt_tokens": 299}, r"promptmill had 299 prompt tokens, LLM.generate \{300\}"),
    ],
)
def test_other_work_is_no_comparison(changes, message):
    with pytest.raises(WorkDiffersError, match=message):
        check_same_work(WORKLOAD, differing(**changes))
