import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.labels import LabelTree
from schemas.errors import SettingsError

END = 0


def test_choices_with_different_first_tokens_take_one_request():
    tree = LabelTree(("a", "b"), [(5, 6), (7,)], END)

    assert [(fork.path, fork.token_ids) for fork in tree.forks] == [((), (5, 7))]
    assert tree.num_answer_tokens == 1


def test_choices_that_begin_alike_are_told_apart_where_they_part():
    tree = LabelTree(("bug", "bug report", "x"), [(5,), (5, 6), (7,)], END)

    assert [(fork.path, fork.token_ids) for fork in tree.forks] == [((), (5, 7)), ((5,), (END, 6))]
    shares = tree.probabilities([(math.log(0.5), math.log(0.25)), (math.log(0.1), math.log(0.3))])
    assert shares == pytest.approx((2 / 3 * 0.25, 2 / 3 * 0.75, 1 / 3))


def test_choices_that_all_begin_alike_ask_only_where_they_part():
    tree = LabelTree(("ab", "ac"), [(1, 2), (1, 3)], END)

    assert [fork.path for fork in tree.forks] == [(1,)]


def test_one_label_that_begins_another_needs_an_end_token():
    with pytest.raises(SettingsError, match="no end token"):
        LabelTree(("bug", "bug report"), [(5,), (5, 6)], None)


def test_choices_that_are_the_same_to_the_model_are_refused():
    with pytest.raises(SettingsError, match="the same to the model"):
        LabelTree(("a", "A"), [(5,), (5,)], END)


paths = st.lists(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), min_size=2, unique=True
)


@given(paths, st.randoms(use_true_random=False))
def test_the_probabilities_of_any_choices_sum_to_one(tokens, random):
    tree = LabelTree([str(path) for path in tokens], tokens, END)
    logprobs = [[random.uniform(-30, 0) for _ in fork.token_ids] for fork in tree.forks]

    shares = tree.probabilities(logprobs)
    assert math.fsum(shares) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares)
