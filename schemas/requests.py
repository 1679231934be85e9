"""What an engine is asked and what it answers, in plain values that cross a pipe."""

from dataclasses import dataclass, field

from schemas.generations import FinishReason
from schemas.model_shape import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How tokens are drawn, with every default resolved; part of a request's identity.

    `allowed_token_ids` restricts every output token; `logprob_token_ids` asks for the
    log-probabilities of just these tokens at the first output token. `json_schema` is the
    schema as JSON text; outputs are constrained to it.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    allowed_token_ids: tuple[int, ...] = ()
    logprob_token_ids: tuple[int, ...] = ()
    json_schema: str | None = None

    @property
    def is_deterministic(self) -> bool:
        """Whether the same prompt is meant to get the same answer: greedy, or a fixed seed."""
        return self.temperature == 0.0 or self.seed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One prompt for an engine.

    `number` is the caller's, unique within one engine; answers bear it. `group` is the
    number of the batch whose bill this request is on.
    """

    number: int
    group: int
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an engine returned for one request: tokens, or why there are none.

    `error` is None for an answer; otherwise the engine refused this request alone, and the
    engine goes on. `logprobs` are in the order of the request's `logprob_token_ids` (natural
    logarithm, over the whole vocabulary). `queue_s`, `ttft_s`, `tpot_s` are seconds by the
    engine's own monotonic clock, None where it kept none. `tpot_s` is None for one token.
    """

    number: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | None = None
    num_cached_tokens: int | None = None
    logprobs: tuple[float, ...] = ()
    queue_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one engine step did for one group: tokens computed, by phase.

    `num_prefill_tokens` are prompt tokens computed (cached ones left out; what a preemption
    makes the engine compute again is in them), `num_decode_tokens` output tokens sampled,
    `num_context_tokens` the sum over the group's sequences of the tokens already in the KV
    cache, which attention reads.

    `num_forward_tokens` went through the layers: the prefill and decode tokens without each
    answer's first output token, which comes out of the prompt's last. `num_query_key_pairs`
    is what attention multiplied: T tokens on a context of c are T*c + T*(T+1)/2 pairs.

    `num_preemptions` counts the group's sequences that lost their place in the KV cache; such
    a group may have computed nothing in the step.
    """

    group: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_context_tokens: int
    num_forward_tokens: int = 0
    num_query_key_pairs: int = 0
    num_preemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One engine step: when it began, how long it took, and the work of each group in it.

    `started_s` is the engine process's monotonic clock. `kv_usage_fraction` is of the
    engine's KV cache, in 0-1. `num_preemptions` counts those since the step before.
    `energy_j` is what all devices of the engine used meanwhile, None where none is metered.
    """

    started_s: float
    duration_s: float
    num_running: int
    num_waiting: int
    kv_usage_fraction: float
    num_preemptions: int
    work: tuple[StepWork, ...]
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine is, once it is ready; all of it goes into the lineage.

    `kv_capacity_tokens` bounds prompt + output of all running sequences; None: unbounded.
    `close_s` is how long ending it takes at most.
    `settings` are the engine's own, as text by name. `memory_bytes` is what its process
    holds of the device's (or machine's) memory after loading. `roofline` is the model's shape
    and the limits of one device, None where one of them is not known.
    """

    engine: str
    engine_version: str
    device_name: str
    num_devices: int
    max_model_len: int
    max_num_seqs: int
    kv_capacity_tokens: int | None
    load_s: float
    memory_bytes: int | None
    close_s: float = 0.0
    is_gpu: bool = False
    roofline: Roofline | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What happened in an engine since the last poll: answers and steps, in order."""

    answers: tuple[Answer, ...]
    steps: tuple[StepStats, ...]
