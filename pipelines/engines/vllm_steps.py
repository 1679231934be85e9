"""What each engine step computed, and for whom, from vLLM's own scheduler decisions.

The source is the SchedulerOutput that the model has just executed, in
Scheduler.update_from_output: it names every sequence in the step, the tokens computed for it
and those already in the KV cache. That holds for both of vLLM's schedulers, the asynchronous
one too, where a step's results come a step later. vLLM's per-step statistics know only sums
over all requests, and its MFU estimate takes W8A8 weights for half a byte.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from schemas.requests import StepStats, StepWork

if TYPE_CHECKING:
    from vllm.v1.core.sched.interface import SchedulerInterface
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats
    from vllm.v1.outputs import ModelRunnerOutput


Count = Callable[["SchedulerOutput", "ModelRunnerOutput"], None]


class StepRecorder:
    """Counts the work of a step per group; takes the place of vLLM's logger manager too.

    vLLM's own manager always feeds Prometheus, one observation per sequence and step.
    """

    def __init__(self) -> None:
        """Know of no request."""
        self._requests: dict[str, tuple[int, int]] = {}
        self._work: dict[int, list[int]] = {}
        self._num_running = 0
        self._num_waiting = 0
        self._kv_usage_fraction = 0.0
        self._num_preemptions = 0

    def add(self, request_id: str, *, group: int, num_prompt_tokens: int) -> None:
        """Count what is computed for vLLM's request `request_id` in this group."""
        self._requests[request_id] = (group, num_prompt_tokens)

    def count(self, scheduled: "SchedulerOutput", computed: "ModelRunnerOutput") -> None:
        """Count one executed step; 0.5 us per sequence in it (AMD Zen 3).

        A request's last mention is in `finished_req_ids`, after any step that still holds it.
        """
        sampled, places = computed.sampled_token_ids, computed.req_id_to_index
        new, cached = scheduled.scheduled_new_reqs, scheduled.scheduled_cached_reqs
        contexts = [(one.req_id, one.num_computed_tokens) for one in new]
        contexts += zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        requests, num_scheduled, work_of = (
            self._requests,
            scheduled.num_scheduled_tokens,
            self._work,
        )
        for request_id, context in contexts:
            group, num_prompt_tokens = requests[request_id]
            num_tokens = num_scheduled[request_id]
            place = places.get(request_id)
            work = work_of.get(group) or work_of.setdefault(group, [0] * 6)
            if num_tokens > 1 or context < num_prompt_tokens:
                work[0] += num_tokens
            work[1] += len(sampled[place]) if sampled and place is not None else 0
            work[2] += context
            work[3] += num_tokens
            work[4] += num_tokens * context + num_tokens * (num_tokens + 1) // 2
        for request_id in scheduled.preempted_req_ids or ():
            if request_id in requests:
                work_of.setdefault(requests[request_id][0], [0] * 6)[5] += 1
        self._num_running = len(contexts)
        for request_id in scheduled.finished_req_ids:
            requests.pop(request_id, None)

    def take(self, started_s: float, ended_s: float) -> StepStats | None:
        """Return what was counted since the last take; None if nothing was computed."""
        if not self._work:
            return None
        step = StepStats(
            started_s=started_s,
            duration_s=ended_s - started_s,
            num_running=self._num_running,
            num_waiting=self._num_waiting,
            kv_usage_fraction=self._kv_usage_fraction,
            num_preemptions=self._num_preemptions,
            work=tuple(
                StepWork(
                    group=group,
                    num_prefill_tokens=prefill,
                    num_decode_tokens=decode,
                    num_context_tokens=context,
                    num_forward_tokens=forward,
                    num_query_key_pairs=pairs,
                    num_preemptions=preempted,
                )
                for group, (
                    prefill,
                    decode,
                    context,
                    forward,
                    pairs,
                    preempted,
                ) in self._work.items()
            ),
        )
        self._work = {}
        self._num_preemptions = 0
        return step

    def record(
        self,
        scheduler_stats: "SchedulerStats | None",
        iteration_stats: "IterationStats | None",
        **_others: object,
    ) -> None:
        """Take queue lengths and preemptions of the step from vLLM (its logger's interface)."""
        if scheduler_stats is not None:
            self._num_waiting = scheduler_stats.num_waiting_reqs
            self._kv_usage_fraction = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            self._num_preemptions += iteration_stats.num_preempted_reqs

    def log(self) -> None:
        """Print nothing (vLLM's logger's interface)."""


def counting_scheduler(
    scheduler: "type[SchedulerInterface]", count: Count
) -> "type[SchedulerInterface]":
    """Return a subclass of vLLM's `scheduler` that calls `count` for every executed step."""

    def update_from_output(
        self: "SchedulerInterface",
        scheduler_output: "SchedulerOutput",
        model_runner_output: "ModelRunnerOutput",
    ) -> "dict[int, EngineCoreOutputs]":
        count(scheduler_output, model_runner_output)
        return scheduler.update_from_output(self, scheduler_output, model_runner_output)

    members = {"update_from_output": update_from_output, "__module__": __name__}
    return type("CountingScheduler", (scheduler,), members)
