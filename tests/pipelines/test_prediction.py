import pytest

from pipelines.prediction import MIN_REQUESTS, Prediction
from schemas.output_lengths import OutputLengths


def prediction(*pairs: tuple[int, int]) -> Prediction:
    return Prediction(basis="a test", lengths=OutputLengths.of(pairs))


def test_without_answers_the_maximum_is_expected():
    found = prediction().expected(100, max_output_tokens=64)

    assert (found.mean, found.p90, found.high) == (64, 64, 64)


def test_prompts_are_expected_to_be_answered_as_prompts_of_their_length_were():
    found = prediction(*[(20, 5)] * 40, *[(200, 15)] * 40)

    assert found.expected(21, max_output_tokens=64).mean == 5
    assert found.expected(200, max_output_tokens=64).mean == 15


def test_lengths_that_were_never_seen_borrow_from_the_nearest():
    found = prediction(*[(20, 5)] * 40, *[(200, 15)] * 40)

    assert found.expected(3, max_output_tokens=64).mean == 5
    assert found.expected(5000, max_output_tokens=64).mean == 15


def test_a_length_with_few_answers_borrows_from_its_neighbours_too():
    few = prediction((50, 10), *[(40, 2)] * MIN_REQUESTS)
    many = prediction(*[(50, 10)] * MIN_REQUESTS, *[(40, 2)] * MIN_REQUESTS)

    assert few.expected(50, max_output_tokens=64).mean == pytest.approx(2, abs=0.3)
    assert many.expected(50, max_output_tokens=64).mean == 10


def test_quantiles_are_what_that_share_of_the_answers_did_not_pass():
    found = prediction(*[(30, n % 10) for n in range(200)]).expected(30, max_output_tokens=64)

    assert (found.mean, found.p90, found.high) == (4.5, 8, 9)


def test_nothing_is_expected_beyond_what_is_possible():
    found = prediction(*[(30, 500)] * 40).expected(30, max_output_tokens=64)

    assert (found.mean, found.p90, found.high) == (64, 64, 64)
