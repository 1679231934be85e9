from types import SimpleNamespace

import pytest

from pipelines.engines.vllm_requests import Limits, answer_of_output, refusal
from schemas.requests import EngineRequest, SamplingSettings

LIMITS = Limits(max_model_len=100, vocab_size=1000, kv_capacity_tokens=90)


def request(prompt=(1, 2, 3), **sampling):
    settings = SamplingSettings(**{"max_tokens": 10, **sampling})
    return EngineRequest(number=1, group=0, prompt_token_ids=prompt, sampling=settings)


def output(**fields):
    made = {"token_ids": [5], "finish_reason": "length", "stop_reason": None, "logprobs": None}
    stats = SimpleNamespace(
        queued_ts=10.0, scheduled_ts=11.0, first_token_ts=13.0, last_token_ts=19.0
    )
    return SimpleNamespace(
        outputs=[SimpleNamespace(**{**made, **fields})], num_cached_tokens=32, metrics=stats
    )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request(()), "the prompt has no tokens"),
        (request((7,) * 91), "91 prompt tokens and up to 10 output tokens are more than"),
        (request((7,) * 85), "95 tokens do not fit the KV cache of 90"),
        (request((1, 1000)), "outside the vocabulary of 1000"),
        (request((1, -1)), "outside the vocabulary of 1000"),
        (
            request(allowed_token_ids=tuple(range(1025))),
            "1025 allowed_token_ids, the limit is 1024",
        ),
        (request(allowed_token_ids=(5, 1000)), "one of allowed_token_ids is outside"),
        (request(logprob_token_ids=tuple(range(129))), "129 logprob_token_ids, the limit is 128"),
        (request(logprob_token_ids=(-1,)), "one of logprob_token_ids is outside"),
        (request(temperature=0.001), "temperature 0.001 is neither 0 nor at least 0.01"),
    ],
)
def test_what_would_harm_the_engine_is_refused_with_the_numbers(asked, why):
    assert why in refusal(asked, LIMITS)


@pytest.mark.parametrize(
    "asked", [request((7,) * 80), request((0, 999)), request(allowed_token_ids=(0, 999))]
)
def test_what_just_fits_is_taken(asked):
    assert refusal(asked, LIMITS) is None


def test_a_refusal_quotes_no_prompt():
    assert "4711" not in refusal(request((4711,)), LIMITS)


def test_log_probabilities_are_taken_by_place_because_padding_bears_token_id_0():
    # One asked for two tokens, another of the same step for four: vLLM pads the first with 0.
    flat = SimpleNamespace(
        start_indices=[0], token_ids=[7, 0, 7, 0, 0], logprobs=[-1.0, -2.0, -1.0, float("-inf")]
    )
    sampling = SamplingSettings(max_tokens=1, logprob_token_ids=(0, 7))

    assert answer_of_output(1, sampling, output(logprobs=flat)).logprobs == (-2.0, -1.0)


def test_timings_come_from_the_monotonic_readings_only():
    sampling = SamplingSettings(max_tokens=4)

    answer = answer_of_output(1, sampling, output(token_ids=[5, 6, 7, 8]))

    assert (answer.queue_s, answer.ttft_s, answer.tpot_s) == (1.0, 3.0, 2.0)


def test_a_one_token_answer_has_no_time_per_token():
    assert answer_of_output(1, SamplingSettings(max_tokens=1), output()).tpot_s is None


def test_an_answer_that_vllm_ends_with_an_error_is_a_refusal():
    answer = answer_of_output(1, SamplingSettings(max_tokens=1), output(finish_reason="error"))

    assert "'error'" in answer.error
    assert answer.token_ids == ()
