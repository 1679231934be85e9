import pytest

from pipelines.meter import Use
from pipelines.savings import saved_usd, shared_work
from tests.pipelines.test_roofline import ROOFLINE

USE = Use(
    device_s=36.0,
    num_prefill_tokens=90,
    num_decode_tokens=10,
    num_forward_tokens=99,
    num_query_key_pairs=5000,
)


def test_a_saved_token_has_the_price_of_a_computed_one_where_no_roofline_is_known():
    saved = shared_work(prefixes=[20, 30])

    assert saved_usd(saved, USE, None, 100.0) == pytest.approx(1.0 * 50 / 100)


def test_with_a_roofline_a_prefix_saves_its_arithmetic_and_no_sampling():
    half = shared_work(prefixes=[10])
    linear, attention = 2 * 1000 * 10 / 1e6, 256 * 55 / 1e5
    done = 2 * 1000 * 99 / 1e6 + 256 * 5000 / 1e5 + 6400 * 10 / 1e5

    assert saved_usd(half, USE, ROOFLINE, 100.0) == pytest.approx((linear + attention) / done)


def test_a_shared_row_saves_its_output_on_its_prompt_but_not_the_prompt():
    saved = shared_work(outputs=[(100, 3)])

    assert (saved.num_prefill_tokens, saved.num_decode_tokens) == (0, 3)
    assert saved.num_query_key_pairs == 101 + 102 + 103


def test_a_batch_without_work_has_no_price_to_tell():
    assert saved_usd(shared_work(prefixes=[5]), Use(), ROOFLINE, 100.0) is None
