"""What labels and questions mean on vLLM itself, with the bundled INT8 model."""

import math

import pytest

from pipelines.labels import LabelTree
from schemas.requests import EngineRequest
from tests.pipelines.engines.conftest import answers_of

pytestmark = pytest.mark.engine

BUG, REPORT, BILL = 8202, 1378, 82
"""First tokens of `bug` (all of it), of what follows in `bug report`, and of `billing`."""


def test_a_label_trees_probabilities_are_those_of_scoring_every_token_of_every_choice(
    engine, make_request, tokenizer
):
    """Scored one by one, each token in a request of its own that nothing constrains."""
    choices, end = ("bug", "bug report", "billing"), tokenizer.token_to_id("<|im_end|>")
    prompt = make_request(0, "Is this about a bug, a bug report or billing?").prompt_token_ids
    tree = LabelTree(choices, [tokenizer.encode(one).ids for one in choices], end)
    asked = [
        EngineRequest(
            number=i, group=0, prompt_token_ids=prompt + fork.path, sampling=tree.sampling(fork)
        )
        for i, fork in enumerate(tree.forks)
    ]
    pairs = [((), BUG), ((), BILL), ((BUG,), end), ((BUG,), REPORT)]
    scored = [
        make_request(10 + i, prompt + path, max_tokens=1, logprob_token_ids=(token,))
        for i, (path, token) in enumerate(pairs)
    ]

    answers, _ = answers_of(engine, [*asked, *scored])

    found = tree.probabilities([answers[i].logprobs for i in range(len(asked))])
    bug, bill, ends, report = (math.exp(answers[10 + i].logprobs[0]) for i in range(4))
    begins, goes_on = bug / (bug + bill), report / (report + ends)
    assert sum(found) == pytest.approx(1)
    assert found == pytest.approx((begins * (1 - goes_on), begins * goes_on, 1 - begins), abs=0.01)


@pytest.mark.parametrize(("num_shared", "num_cached"), [(150, 128), (64, 64), (20, 0)])
def test_questions_on_one_document_compute_it_once_in_whole_cache_blocks(
    engine, make_request, num_shared, num_cached
):
    """Asked at once, as a row's questions are: the first fills the cache for the others."""
    document = tuple(range(1000 + num_shared, 1000 + 2 * num_shared))
    asked = [make_request(i, (*document, 50 + i, 60, 70), max_tokens=1) for i in range(6)]

    answers, steps = answers_of(engine, asked)

    assert [answers[i].num_cached_tokens for i in range(6)] == [0, *[num_cached] * 5]
    num_computed = sum(work.num_prefill_tokens for step in steps for work in step.work)
    assert num_computed == 6 * (num_shared + 3) - 5 * num_cached
