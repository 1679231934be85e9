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


class _Group:
    """What has been computed for one group since the last take, and its requests."""

    __slots__ = ("context", "decode", "forward", "group", "num_requests", "pairs", "prefill")

    def __init__(self, group: int) -> None:
        self.group = group
        self.num_requests = 0
        self.prefill = self.decode = self.context = self.forward = self.pairs = 0

    def take(self) -> StepWork:
        work = StepWork(
            group=self.group,
            num_prefill_tokens=self.prefill,
            num_decode_tokens=self.decode,
            num_context_tokens=self.context,
            num_forward_tokens=self.forward,
            num_query_key_pairs=self.pairs,
        )
        self.prefill = self.decode = self.context = self.forward = self.pairs = 0
        return work


class StepRecorder:
    """Counts the work of a step per group; takes the place of vLLM's logger manager too.

    vLLM's own manager always feeds Prometheus, one observation per sequence and step.
    """

    def __init__(self) -> None:
        """Know of no request."""
        self._groups: dict[int, _Group] = {}
        self._requests: dict[str, tuple[_Group, int]] = {}
        self._num_running = 0
        self._num_waiting = 0
        self._kv_usage_fraction = 0.0
        self._num_preemptions = 0

    def add(self, request_id: str, *, group: int, num_prompt_tokens: int) -> None:
        """Count what is computed for vLLM's request `request_id` in this group."""
        counts = self._groups.get(group)
        if counts is None:
            counts = self._groups[group] = _Group(group)
        counts.num_requests += 1
        self._requests[request_id] = (counts, num_prompt_tokens)

    def count(self, scheduled: "SchedulerOutput", computed: "ModelRunnerOutput") -> None:
        """Count one executed step; 0.3 us per sequence in it (2 cores of AMD Zen 3).

        A request's last mention is in `finished_req_ids`, after any step that still holds it.
        """
        new, cached = scheduled.scheduled_new_reqs, scheduled.scheduled_cached_reqs
        contexts = [(one.req_id, one.num_computed_tokens) for one in new]
        contexts += zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        requests, num_scheduled = self._requests, scheduled.num_scheduled_tokens
        for request_id, context in contexts:
            counts, num_prompt_tokens = requests[request_id]
            num_tokens = num_scheduled[request_id]
            if num_tokens > 1 or context < num_prompt_tokens:
                counts.prefill += num_tokens
            counts.context += context
            counts.forward += num_tokens
            counts.pairs += num_tokens * context + num_tokens * (num_tokens + 1) // 2
        sampled = computed.sampled_token_ids
        if sampled:
            for request_id, place in computed.req_id_to_index.items():
                if request_id in num_scheduled:
                    requests[request_id][0].decode += len(sampled[place])
        self._num_running = len(contexts)
        for request_id in scheduled.finished_req_ids:
            self._forget(request_id)

    def take(self, started_s: float, ended_s: float) -> StepStats | None:
        """Return what was counted since the last take; None if nothing was computed."""
        work = tuple(one.take() for one in self._groups.values() if one.forward)
        if not work:
            return None
        step = StepStats(
            started_s=started_s,
            duration_s=ended_s - started_s,
            num_running=self._num_running,
            num_waiting=self._num_waiting,
            kv_usage_fraction=self._kv_usage_fraction,
            num_preemptions=self._num_preemptions,
            work=work,
        )
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

    def _forget(self, request_id: str) -> None:
        counts, _ = self._requests.pop(request_id, (None, 0))
        if counts is not None:
            counts.num_requests -= 1
            if not counts.num_requests and not counts.forward:
                del self._groups[counts.group]


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

    return type("CountingScheduler", (scheduler,), {"update_from_output": update_from_output})
