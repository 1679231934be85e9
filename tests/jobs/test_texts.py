import pytest

from jobs.commands.texts import of_limit


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.473, "47.3 %  (compute)"),
        (None, "-"),
        (1.087, "108.7 %  (so the limit is too low: it was measured beside other work)"),
    ],
)
def test_a_share_over_the_limit_says_that_the_limit_is_too_low(fraction, text):
    """A first demo beside other work told its user of 108.7 % and nothing more."""
    assert of_limit(fraction, "compute") == text
