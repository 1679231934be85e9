"""vLLM itself on the bundled INT8 model."""

import itertools
import json
import math
import os
import subprocess
import sys

import pytest

from tests.pipelines.engines.conftest import MAX_MODEL_LEN, answers_of
from tests.pipelines.engines.processes import listening_addresses

pytestmark = pytest.mark.engine

QUESTIONS = [
    "What is the capital of France?",
    "Name a color of the rainbow.",
    "What is two plus two?",
    "Say hello.",
    "Which animal barks?",
    "Is water wet?",
]

PLAIN_VLLM = """
import json, sys
from vllm import LLM, SamplingParams
path, prompts = json.load(sys.stdin)
llm = LLM(path, enforce_eager=True, max_model_len=256, kv_cache_memory_bytes=10**8)
outputs = llm.generate(
    [{"prompt_token_ids": prompt} for prompt in prompts],
    SamplingParams(temperature=0.0, max_tokens=8),
    use_tqdm=False,
)
print("ANSWERS", json.dumps([list(output.outputs[0].token_ids) for output in outputs]))
"""


def test_facts_say_what_the_engine_is(engine):
    facts = engine.facts

    assert (facts.engine, facts.engine_version) == ("vllm", "0.32.0")
    assert (facts.max_model_len, facts.max_num_seqs) == (MAX_MODEL_LEN, 8)
    assert facts.kv_capacity_tokens >= 8 * MAX_MODEL_LEN
    assert facts.load_s > 1.0
    assert facts.memory_bytes > 100_000_000
    assert facts.settings["quantization"] == "compressed-tensors"
    assert facts.settings["num_threads"] == "1"


@pytest.mark.slow
def test_greedy_answers_are_those_of_plain_vllm(engine, make_request, int8_checkpoint):
    """All but one: batches of other sizes may differ in the last bit, and in a token by it."""
    asked = [make_request(i, question) for i, question in enumerate(QUESTIONS)]
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    plain = subprocess.run(
        [sys.executable, "-c", PLAIN_VLLM],
        input=json.dumps([int8_checkpoint.path, [r.prompt_token_ids for r in asked]]),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    line = next(one for one in plain.stdout.splitlines() if one.startswith("ANSWERS"))
    expected = [tuple(tokens) for tokens in json.loads(line.removeprefix("ANSWERS"))]

    answers, _ = answers_of(engine, asked)
    same = [answers[i].token_ids == expected[i] for i in range(len(asked))]
    assert sum(same) >= len(asked) - 1


def test_what_cannot_be_asked_is_refused_alone_and_its_neighbours_are_answered(
    engine, make_request
):
    question = QUESTIONS[0]
    alone, _ = answers_of(engine, [make_request(0, question)])
    bad = [
        make_request(1, (5,) * MAX_MODEL_LEN),
        make_request(3, (5, 49_152)),
        make_request(5, question, allowed_token_ids=tuple(range(1025))),
        make_request(7, question, allowed_token_ids=(49_152,)),
        make_request(9, question, temperature=3.0),
        make_request(11, question, json_schema='{"type": "obj'),
        make_request(13, ()),
    ]
    good = [make_request(number, question) for number in range(0, 14, 2)]

    answers, _ = answers_of(engine, sorted([*bad, *good], key=lambda one: one.number))

    assert all(answers[one.number].error for one in bad)
    assert {answers[one.number].token_ids for one in good} == {alone[0].token_ids}


def test_a_choice_has_the_log_probability_of_every_token_asked_for_in_the_order_asked(
    engine, make_request
):
    question, choices = QUESTIONS[5], (9042, 0, 3428, 5, 17)
    forward = make_request(
        1, question, max_tokens=1, allowed_token_ids=choices, logprob_token_ids=choices
    )
    backward = make_request(
        2, question, max_tokens=1, allowed_token_ids=choices, logprob_token_ids=choices[::-1]
    )
    short = make_request(3, question, max_tokens=1, logprob_token_ids=choices[:2])

    answers, _ = answers_of(engine, [forward, backward, short])
    logprobs = answers[1].logprobs
    assert answers[1].token_ids[0] == choices[logprobs.index(max(logprobs))]
    assert all(-100.0 < one < 0.0 for one in logprobs)
    assert 0.0 < sum(map(math.exp, logprobs)) <= 1.0
    assert answers[2].logprobs[::-1] == pytest.approx(logprobs, abs=0.1)
    assert answers[3].logprobs == pytest.approx(logprobs[:2], abs=0.1)


def test_the_work_of_all_steps_is_the_tokens_of_all_answers(engine, make_request):
    shared = "Once upon a time there was a king who had three daughters. " * 3
    asked = [
        make_request(i, f"{shared} {question}", group=i % 3, max_tokens=5, ignore_eos=True)
        for i, question in enumerate(QUESTIONS * 3)
    ]

    answers, steps = answers_of(engine, asked)

    assert sum(step.num_preemptions for step in steps) == 0
    for group in range(3):
        requests = [one for one in asked if one.group == group]
        work = [one for step in steps for one in step.work if one.group == group]
        num_cached = sum(answers[one.number].num_cached_tokens for one in requests)
        num_prompt = sum(len(one.prompt_token_ids) for one in requests)
        num_output = sum(len(answers[one.number].token_ids) for one in requests)
        assert num_cached > 0
        assert num_output == 5 * len(requests)
        assert sum(one.num_prefill_tokens for one in work) == num_prompt - num_cached
        assert sum(one.num_decode_tokens for one in work) == num_output
        assert sum(one.num_forward_tokens for one in work) == (
            num_prompt - num_cached + num_output - len(requests)
        )


def test_steps_follow_each_other_without_a_gap_and_never_hold_more_than_max_num_seqs(
    engine, make_request
):
    asked = [make_request(i, question) for i, question in enumerate(QUESTIONS * 4)]

    _, steps = answers_of(engine, asked)

    for earlier, later in itertools.pairwise(steps):
        assert later.started_s == pytest.approx(earlier.started_s + earlier.duration_s, abs=1e-6)
    assert max(step.num_running for step in steps) == 8
    assert max(step.num_waiting for step in steps) > 0


def test_timings_are_in_order_and_in_seconds(engine, make_request):
    answers, steps = answers_of(engine, [make_request(1, QUESTIONS[0], ignore_eos=True)])

    busy_s = sum(step.duration_s for step in steps)
    answer = answers[1]
    assert 0.0 <= answer.queue_s <= answer.ttft_s <= busy_s + 1.0
    assert 0.0 < answer.tpot_s * 7 <= busy_s


def test_an_answer_ends_at_the_end_token_or_at_a_stop_string_or_at_max_tokens(
    engine, make_request, tokenizer
):
    answers, _ = answers_of(
        engine,
        [
            make_request(1, QUESTIONS[0], max_tokens=30),
            make_request(2, QUESTIONS[0], max_tokens=30, stop=("capital",)),
            make_request(3, QUESTIONS[0], max_tokens=2),
        ],
    )

    assert (answers[1].finish_reason, answers[1].stop_reason) == ("stop", None)
    assert answers[1].token_ids[-1] == tokenizer.token_to_id("<|im_end|>")
    assert (answers[2].finish_reason, answers[2].stop_reason) == ("stop", "capital")
    assert (answers[3].finish_reason, len(answers[3].token_ids)) == ("length", 2)


@pytest.mark.slow
def test_a_json_schema_constrains_the_answer(engine, make_request, tokenizer):
    schema = (
        '{"type":"object","properties":{"city":{"enum":["Paris","Rome"]}},'
        '"required":["city"],"additionalProperties":false}'
    )
    asked = [make_request(i, QUESTIONS[0], max_tokens=40, json_schema=schema) for i in range(2)]

    answers, _ = answers_of(engine, asked)
    for answer in answers.values():
        assert json.loads(tokenizer.decode(list(answer.token_ids)))["city"] in {"Paris", "Rome"}


def test_requests_that_are_dropped_are_never_answered_and_their_numbers_are_free(
    engine, make_request
):
    engine.submit(
        [make_request(i, QUESTIONS[0], max_tokens=200, ignore_eos=True) for i in range(9)]
    )
    engine.poll(30.0)
    engine.reset()

    answers, _ = answers_of(engine, [make_request(0, QUESTIONS[0], max_tokens=1)])
    assert len(answers[0].token_ids) == 1
    assert engine.poll(0.5).answers == ()


def test_steps_hold_no_more_than_they_are_limited_to_and_cached_prompts_are_forgotten(
    engine, make_request
):
    asked = [make_request(i, QUESTIONS[0], max_tokens=3, ignore_eos=True) for i in range(4)]
    answers_of(engine, asked)

    engine.limit(max_num_seqs=2, max_num_batched_tokens=64)
    first, _ = answers_of(engine, asked[:1])
    _, steps = answers_of(engine, asked)
    engine.limit(max_num_seqs=8, max_num_batched_tokens=512)
    _, wide = answers_of(engine, asked)

    assert first[0].num_cached_tokens == 0
    assert max(step.num_running for step in steps) == 2
    assert max(step.num_running for step in wide) == 4


def test_the_engine_listens_nowhere_but_on_the_loopback(engine):
    assert listening_addresses(engine._child.pid) <= {"0100007F", "0" * 24 + "01000000"}


def test_no_prompt_and_no_output_is_in_the_log(engine, make_request, engine_log):
    """Canary words, in a request that is answered and in one that vLLM refuses."""
    answers, _ = answers_of(
        engine,
        [
            make_request(1, "Repeat the word xylocanary.", stop=("zzz",)),
            make_request(2, "xylocanary", min_tokens=9),
        ],
    )

    assert answers[2].error is not None
    assert "xylo" not in answers[2].error
    assert "xylo" not in engine_log.read_text()
