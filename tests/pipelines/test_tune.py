import time
from dataclasses import replace

import pytest

from pipelines.asking import AskForText
from pipelines.engines import EchoEngine
from pipelines.storage import open_store
from pipelines.tune import Combination, combinations, search
from pipelines.tuning_sample import MAX_REQUESTS, sample_of
from schemas.errors import SettingsError
from schemas.requests import EngineRequest, SamplingSettings


class SlowWithFewSequences(EchoEngine):
    """Answers faster with more sequences, up to 16, and when it is compiled."""

    def __init__(self, largest: Combination, limits: list[tuple[int, int]]) -> None:
        super().__init__(max_num_seqs=8)
        self._largest = largest
        self._seen = limits
        self._wait_s = 0.0

    def limit(self, *, max_num_seqs, max_num_batched_tokens):
        assert max_num_seqs <= self._largest.max_num_seqs
        assert max_num_batched_tokens <= self._largest.max_num_batched_tokens
        self._seen.append((max_num_seqs, max_num_batched_tokens))
        self._wait_s = 0.002 * 16 / min(16, max_num_seqs) / (1 + self._largest.is_compiled)

    def poll(self, timeout_s):
        time.sleep(self._wait_s)
        return super().poll(timeout_s)


def requests(count: int) -> list[EngineRequest]:
    sampling = SamplingSettings(max_tokens=4)
    return [
        EngineRequest(number=number, group=0, prompt_token_ids=(1, 2, 3), sampling=sampling)
        for number in range(count)
    ]


@pytest.fixture
def searched():
    """Searches over 64 requests, and returns what was found, opened and limited."""

    def found(wanted, **times):
        opened, limits = [], []

        def open_engine(largest):
            opened.append(largest)
            return SlowWithFewSequences(largest, limits)

        bounds = {"budget_s": 20.0, "compile_s": 0.0, **times}
        return search(requests(64), wanted, open_engine, **bounds), opened, limits

    return found


def test_likely_combinations_come_first_and_a_step_has_a_token_for_each_sequence():
    found = combinations(64, 512, modes=(False, True))

    assert found[0] == Combination(max_num_seqs=64, max_num_batched_tokens=512, is_compiled=False)
    assert len(found) == 18
    assert [one.is_compiled for one in found] == [False] * 9 + [True] * 9
    assert all(
        one.max_num_batched_tokens >= one.max_num_seqs
        for one in combinations(128, 128, modes=(False,))
    )


def test_the_fastest_combination_is_found_with_one_engine_for_each_mode(searched):
    found, opened, limits = searched(combinations(8, 64, modes=(False, True)))
    fastest = max(found.trials, key=lambda trial: trial.tokens_per_s)

    assert fastest.is_compiled
    assert fastest.max_num_seqs == 16
    assert [one.is_compiled for one in opened] == [False, True]
    assert (16, 128) in limits
    assert found.num_requests == 64
    assert (found.mean_prompt_tokens, found.mean_output_tokens) == (3, 4)


def test_without_the_time_to_compile_only_eager_ones_are_tried_and_that_is_said(searched):
    found, opened, _ = searched(combinations(8, 64, modes=(False, True)), compile_s=1000.0)

    assert [one.is_compiled for one in opened] == [False]
    assert not any(trial.is_compiled for trial in found.trials)
    assert {one.is_compiled for one in found.left_out} == {True}


def test_a_search_ends_with_its_time_and_one_trial_at_the_least(searched):
    found, _, _ = searched(combinations(8, 64, modes=(False,)), budget_s=0.0)

    assert len(found.trials) == 1
    assert len(found.left_out) == 8


@pytest.fixture
def sampled(write_input, make_job, make_tools, chat):
    """The sample of a job over so many rows."""
    from pipelines.run import make_plan
    from pipelines.work import prepare

    def sample(tmp_path, num_rows, **sampling):
        texts = [f"{i} " * (1 + i % 40) for i in range(num_rows)]
        write_input({"id": [f"r{i}" for i in range(num_rows)], "text": texts})
        job = make_job(sampling={"max_tokens": 6, **sampling}, output={"max_batch_tokens": 4000})
        store = open_store(str(tmp_path / "plan"))
        work = prepare(job, make_tools())
        plan = make_plan(work, store=store)
        return sample_of(store, plan, AskForText(chat), job.sampling.settings())

    return sample


def test_a_sample_is_from_all_over_the_plan_with_outputs_of_fixed_lengths(sampled, tmp_path):
    found = sampled(tmp_path, 2000, stop=["."])
    lengths = [len(one.prompt_token_ids) for one in found]

    assert MAX_REQUESTS / 2 < len(found) <= MAX_REQUESTS
    assert max(lengths) > 5 * min(lengths)
    assert {one.sampling.ignore_eos for one in found} == {True}
    assert {one.sampling.stop for one in found} == {()}
    assert all(1 <= one.sampling.max_tokens <= 6 for one in found)
    assert len({one.number for one in found}) == len(found)


def test_no_more_sequences_are_tried_than_the_sample_can_fill(searched):
    found, _, limits = searched(combinations(100, 200, modes=(False,)))

    assert max(seqs for seqs, _ in limits) == found.num_requests == 64
    assert len(set(limits)) == len(limits) == len(found.trials)


def test_a_plan_without_requests_cannot_be_tuned_with(write_input, sampled, tmp_path):
    with pytest.raises(SettingsError, match="no request"):
        sampled(tmp_path, 0)


def test_a_request_that_is_refused_ends_the_search(searched):
    too_long = replace(requests(1)[0], prompt_token_ids=tuple(range(9000)))

    with pytest.raises(SettingsError, match="a request of the sample was refused"):
        search(
            [too_long],
            combinations(8, 64, modes=(False,)),
            lambda largest: SlowWithFewSequences(largest, []),
            budget_s=1.0,
            compile_s=0.0,
        )
