from dataclasses import replace

from schemas.plans import Plan, PlannedBatch
from schemas.workloads import workload_of

BATCH = PlannedBatch(
    batch_id="b0000000",
    part=0,
    row_group=0,
    num_rows=4,
    num_requests=4,
    num_shared=0,
    num_rejects=0,
    num_prompt_tokens=400,
    predicted_output_tokens=80,
    max_output_tokens=200,
    longest_tokens=190,
)
SHORTER = replace(
    BATCH, num_prompt_tokens=200, predicted_output_tokens=40, num_requests=4, longest_tokens=70
)
REJECTS = replace(
    BATCH,
    num_requests=0,
    num_prompt_tokens=0,
    predicted_output_tokens=0,
    num_rejects=4,
    longest_tokens=None,
)


def plan_of(*batches: PlannedBatch) -> Plan:
    return Plan(
        version=1,
        run_key="run1-0",
        profile_id="pf1-0",
        job="{}",
        partition=None,
        input_uri="in",
        id_column=None,
        files=(),
        parts=(),
        batches=batches,
        rejects_by_code={},
        num_shared_tokens=0,
        num_prefix_tokens=300,
        prediction_basis="max_tokens",
        output_lengths="",
        planned_s=0.0,
    )


def test_a_workload_is_the_lengths_of_what_is_pending():
    found = workload_of(plan_of(REJECTS, BATCH, SHORTER), (REJECTS, BATCH, SHORTER))

    assert found is not None
    assert (found.num_requests, found.mean_prompt_tokens, found.mean_output_tokens) == (8, 75, 15)
    assert found.mean_uncached_tokens == 37.5
    assert (found.heaviest_mean_tokens, found.longest_tokens) == (120, 190)
    assert found.num_computed_tokens == 300 + 120


def test_pending_batches_have_their_part_of_what_prefixes_share():
    found = workload_of(plan_of(BATCH, SHORTER), (SHORTER,))

    assert found is not None
    assert found.mean_uncached_tokens == 25
    assert found.longest_tokens == 70


def test_rejects_alone_are_no_workload():
    assert workload_of(plan_of(REJECTS), (REJECTS,)) is None


def test_a_batch_that_does_not_say_its_longest_leaves_the_longest_unknown():
    unknown = replace(SHORTER, longest_tokens=None)

    found = workload_of(plan_of(BATCH, unknown), (BATCH, unknown))

    assert found is not None
    assert found.longest_tokens is None
