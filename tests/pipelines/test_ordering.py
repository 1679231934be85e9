import polars as pl
import pytest

from pipelines.ordering import MIN_PROBE, ordered, with_predictions
from pipelines.prediction import Prediction, fixed_lengths
from schemas.output_lengths import OutputLengths

UNKNOWN = Prediction(basis="a test", lengths=OutputLengths())
TWICE_THE_PROMPT = Prediction(
    basis="a test", lengths=OutputLengths.of([(n, 2 * n) for n in range(1, 200)] * 40)
)


def requests(lengths: list[int], *, prefixes: list[int] | None = None, most: int = 64):
    """Rows of the spool's index: prompts of these lengths, each alone unless a prefix is given."""
    return pl.DataFrame(
        {
            "number": range(len(lengths)),
            "num_prompt_tokens": lengths,
            "max_output_tokens": [most] * len(lengths),
            "prefix": prefixes or list(range(len(lengths))),
        },
        schema_overrides={
            "number": pl.UInt32,
            "num_prompt_tokens": pl.Int32,
            "max_output_tokens": pl.Int32,
        },
    )


def test_without_answers_to_go_by_what_is_possible_is_predicted():
    found = with_predictions(requests([5, 9, 7]), UNKNOWN)

    assert found["predicted_output_tokens"].to_list() == [64, 64, 64]


def test_with_answers_to_go_by_lengths_are_predicted_up_to_what_is_possible():
    found = with_predictions(requests([10, 20, 60], most=50), TWICE_THE_PROMPT)

    assert found["predicted_output_tokens"].to_list() == pytest.approx([20, 40, 50], rel=0.2)


@pytest.mark.parametrize(("num_requests", "num_probe"), [(99, 0), (400, MIN_PROBE), (9000, 90)])
def test_a_first_run_feeds_a_probe_of_all_lengths_first(num_requests, num_probe):
    lengths = [1 + n * 7919 % 500 for n in range(num_requests)]
    found = ordered(with_predictions(requests(lengths), UNKNOWN), max_batch_tokens=10**6)

    probe = found.filter("is_probe")
    assert found["is_probe"].to_list() == [True] * num_probe + [False] * (num_requests - num_probe)
    assert set(probe["batch"]) <= {0}
    if num_probe:
        assert probe["num_prompt_tokens"].mean() == pytest.approx(
            sum(lengths) / num_requests, rel=0.1
        )


@pytest.mark.parametrize("known", [TWICE_THE_PROMPT, fixed_lengths("a test")])
def test_there_is_no_probe_where_something_is_known(known):
    found = with_predictions(requests([5] * 500), known)

    assert not found["is_probe"].any()


def test_a_group_keeps_its_number_in_the_probe():
    prefixes = [n // 250 for n in range(500)]
    found = with_predictions(requests(list(range(1, 501)), prefixes=prefixes), UNKNOWN)

    numbers = (
        ordered(found, max_batch_tokens=10**6)
        .group_by("prefix")
        .agg(pl.col("prefix_group").unique())
    )
    assert sorted(map(tuple, numbers["prefix_group"].to_list())) == [(1,), (2,)]


def test_no_requests_are_no_batches():
    assert ordered(with_predictions(requests([]), UNKNOWN), max_batch_tokens=10).height == 0
