import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import VerificationError
from schemas.output_lengths import (
    OutputLengths,
    output_span,
    prompt_bucket,
    prompt_span,
)

PAIRS = st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 200_000)), max_size=50)


@given(st.integers(0, 2**31))
def test_every_length_lies_in_the_span_of_its_bucket_which_is_at_most_a_quarter_wide(length):
    first, last = prompt_span(prompt_bucket(length))

    assert first <= length <= last
    assert last - first <= max(1, length) / 4


def test_short_outputs_are_counted_exactly_and_long_ones_to_an_eighth():
    spans = [
        output_span(cell[1]) for n in (0, 1, 15, 100) for cell in OutputLengths.of([(9, n)]).counts
    ]

    assert spans == [(0, 0), (1, 1), (15, 15), (96, 103)]


@given(PAIRS, PAIRS)
def test_counts_of_two_batches_add_up_to_those_of_both(one, two):
    both = OutputLengths.of(one + two)

    assert OutputLengths.sum([OutputLengths.of(one), OutputLengths.of(two)]) == both
    assert both.num_requests == len(one) + len(two)


@given(PAIRS)
def test_counts_are_read_back_as_they_were_written(pairs):
    counts = OutputLengths.of(pairs)

    assert OutputLengths.from_text(counts.to_text()) == counts


@pytest.mark.parametrize("text", ["", "{}x", "[[1,2]]", '[["a",1,2]]', "[1]"])
def test_what_is_no_counts_is_refused(text):
    with pytest.raises(VerificationError, match="output lengths"):
        OutputLengths.from_text(text)
