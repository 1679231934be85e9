"""What Dagster shows of a run."""

from jobs.metadata import run_metadata
from schemas.runs import RunReport

REPORT = RunReport(
    run_key="run1-0",
    run_uri="/out/run1-0",
    num_rows=4,
    num_generations=3,
    num_rejects=1,
    rejects_by_code={"NULL_PROMPT": 1},
    num_requests=3,
    num_batches=2,
    num_reused_batches=0,
    num_prompt_tokens=40,
    num_cached_tokens=10,
    num_output_tokens=20,
    load_s=3.0,
    generate_s=2.0,
    wall_s=6.0,
    device_s=5.0,
    usd=0.01,
    output_tokens_per_s=10.0,
    total_tokens_per_s=30.0,
    run_device_s=5.0,
    run_usd=0.02,
    fraction_of_limit=0.4,
    bound_by="compute",
    num_shared_tokens=7,
    saved_dedup_usd=0.001,
    saved_prefix_usd=None,
)


def test_the_numbers_of_a_run_are_flat_so_that_dagster_plots_them():
    shown = run_metadata(REPORT)

    numbers = {key for key, value in shown.items() if isinstance(value, int | float)}
    assert set(shown) - numbers == {"run_key", "run_uri", "rejects_by_code", "bound_by"}
    assert (shown["cached_fraction"], shown["tokens_per_s"]) == (0.25, 30.0)
