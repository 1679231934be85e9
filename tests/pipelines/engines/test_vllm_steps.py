from types import SimpleNamespace

import pytest

from pipelines.engines.vllm_steps import StepRecorder, counting_scheduler


def scheduled(new=(), cached=(), finished=(), preempted=None):
    """What vLLM's scheduler decided: (request, context, tokens) of new and of known requests."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=r, num_computed_tokens=c) for r, c, _ in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[r for r, _, _ in cached], num_computed_tokens=[c for _, c, _ in cached]
        ),
        num_scheduled_tokens={r: n for r, _, n in (*new, *cached)},
        finished_req_ids=set(finished),
        preempted_req_ids=preempted,
    )


def computed(**sampled):
    return SimpleNamespace(
        sampled_token_ids=list(sampled.values()),
        req_id_to_index={name: i for i, name in enumerate(sampled)},
    )


@pytest.fixture
def recorder():
    made = StepRecorder()
    made.add("a", group=1, num_prompt_tokens=10)
    made.add("b", group=2, num_prompt_tokens=6)
    return made


def counts(recorder):
    step = recorder.take(1.0, 3.0)
    return {
        work.group: (
            work.num_prefill_tokens,
            work.num_decode_tokens,
            work.num_context_tokens,
            work.num_forward_tokens,
            work.num_query_key_pairs,
        )
        for work in step.work
    }


def test_prefill_and_decode_in_one_step_are_counted_for_their_own_groups(recorder):
    recorder.count(scheduled(new=[("b", 0, 6)], cached=[("a", 12, 1)]), computed(b=[9], a=[8]))

    assert counts(recorder) == {2: (6, 1, 0, 6, 21), 1: (0, 1, 12, 1, 13)}


def test_cached_prompt_tokens_are_context_and_not_prefill(recorder):
    recorder.count(scheduled(new=[("a", 8, 2)]), computed(a=[5]))

    assert counts(recorder) == {1: (2, 1, 8, 2, 2 * 8 + 3)}


def test_a_part_of_a_prompt_makes_no_output_token(recorder):
    recorder.count(scheduled(new=[("a", 0, 9)]), computed(a=[]))
    first = counts(recorder)
    recorder.count(scheduled(cached=[("a", 9, 1)]), computed(a=[5]))

    assert first == {1: (9, 0, 0, 9, 45)}
    assert counts(recorder) == {1: (1, 1, 9, 1, 10)}


def test_what_is_computed_again_after_a_preemption_is_prefill(recorder):
    recorder.count(scheduled(cached=[("a", 0, 14)]), computed(a=[5]))

    assert counts(recorder)[1][:2] == (14, 1)


def test_a_preemption_is_the_group_s_whose_sequence_lost_its_place(recorder):
    recorder.count(scheduled(cached=[("a", 12, 1)], preempted={"b"}), computed(a=[5]))
    step = recorder.take(1.0, 3.0)

    assert {work.group: work.num_preemptions for work in step.work} == {1: 0, 2: 1}


def test_a_request_may_be_in_one_more_step_after_it_finished(recorder):
    recorder.count(scheduled(cached=[("a", 12, 1)]), computed(a=[2]))
    recorder.count(scheduled(cached=[("a", 13, 1)]), computed(a=[]))
    recorder.count(scheduled(new=[("b", 0, 6)], finished=["a"]), computed(b=[1]))

    assert counts(recorder)[1][3] == 2


def test_a_step_in_which_nothing_was_computed_is_no_step(recorder):
    recorder.count(scheduled(), computed())

    assert recorder.take(1.0, 3.0) is None


def test_queues_and_preemptions_are_vllms_own_counts(recorder):
    recorder.record(
        scheduler_stats=SimpleNamespace(num_waiting_reqs=4, kv_cache_usage=0.5),
        iteration_stats=SimpleNamespace(num_preempted_reqs=2),
        mm_cache_stats=None,
    )
    recorder.count(scheduled(cached=[("a", 12, 1)]), computed(a=[2]))

    step = recorder.take(1.0, 3.0)
    assert (step.started_s, step.duration_s) == (1.0, 2.0)
    assert (step.num_running, step.num_waiting, step.num_preemptions) == (1, 4, 2)
    assert step.kv_usage_fraction == 0.5


def test_the_scheduler_counts_each_executed_step_and_does_what_it_did():
    class Scheduler:
        def update_from_output(self, scheduler_output, model_runner_output):
            return scheduler_output + model_runner_output

    seen = []
    scheduler = counting_scheduler(Scheduler, lambda *step: seen.append(step))()

    assert scheduler.update_from_output(1, 2) == 3
    assert seen == [(1, 2)]
    assert isinstance(scheduler, Scheduler)
