from benchmarks import results
from benchmarks.page import page
from benchmarks.results import Outcome, Result, Run, rounded_down


def run(seconds: float, **details: float) -> Run:
    return Run(
        load_s=3.0,
        seconds=seconds,
        num_prompt_tokens=900,
        num_cached_tokens=100,
        num_output_tokens=100,
        details=details,
    )


def result(*outcomes: Outcome) -> Result:
    return Result(
        workload="w4",
        title="mixed",
        num_rows=9,
        num_asks=9,
        conditions={"machine": "a loom"},
        outcomes=outcomes,
    )


OURS = Outcome(
    name="promptmill",
    title="promptmill",
    weights="int8",
    runs=(run(10.0, num_steps=50), run(12.0, num_steps=52), run(11.0, num_steps=51)),
)
THEIRS = Outcome(name="llm-defaults", title="theirs", weights="int8", runs=(run(21.98),))


def test_how_many_times_faster_is_by_medians_and_rounded_down():
    text = page([result(OURS, THEIRS)])

    assert result(OURS, THEIRS).speedup("llm-defaults") == 21.98 / 11.0
    assert "| 11.0 (10.0 to 12.0) |" in text
    assert "| 1.99x |" in text
    assert "2.00x" not in text


def test_rounding_down_never_helps_us():
    assert (rounded_down(1.999), rounded_down(2.0), rounded_down(0.349)) == (1.99, 2.0, 0.34)


def test_a_contender_that_did_not_run_says_why():
    missing = Outcome(name="ray-data", title="Ray", weights="int8", failure="not installed")

    assert "| Ray | int8 | not installed |" in page([result(OURS, missing)])


def test_our_own_figures_are_medians_too():
    assert "| engine steps | 51 |" in page([result(OURS, THEIRS)])


def test_results_come_back_from_their_files_as_they_were(tmp_path):
    results.write(result(OURS, THEIRS), tmp_path)

    assert results.read(tmp_path) == (result(OURS, THEIRS),)
