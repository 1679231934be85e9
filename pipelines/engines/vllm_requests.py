"""One request on its way into vLLM, and its answer on the way out.

What is refused here is refused before vLLM sees it: vLLM would take down the whole process
for some of it, wait for ever for some, and give messages that quote the prompt for others.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args

from schemas.generations import FinishReason
from schemas.requests import Answer, EngineRequest, SamplingSettings

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.logprobs import FlatLogprobs
    from vllm.v1.metrics.stats import RequestStateStats

MAX_ALLOWED_TOKEN_IDS = 1024
"""vLLM's own limit on devices with its second model runner (0.32: MAX_NUM_ALLOWED_TOKEN_IDS)."""

MAX_LOGPROB_TOKEN_IDS = 128
"""vLLM's own limit (0.32: sampling_params.MAX_LOGPROB_TOKEN_IDS)."""

MIN_TEMPERATURE = 0.01
"""The lowest that vLLM samples with (0.32: sampling_params._MAX_TEMP)."""

_FINISH_REASONS: tuple[str, ...] = get_args(FinishReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an engine can take; None: not bounded."""

    max_model_len: int
    vocab_size: int | None = None
    kv_capacity_tokens: int | None = None


def refusal(request: EngineRequest, limits: Limits) -> str | None:
    """Return why the engine cannot take this request, None if it can; no prompt is quoted."""
    prompt, sampling = request.prompt_token_ids, request.sampling
    if not prompt:
        return "the prompt has no tokens"
    total = len(prompt) + sampling.max_tokens
    if total > limits.max_model_len:
        return (
            f"{len(prompt)} prompt tokens and up to {sampling.max_tokens} output tokens are more "
            f"than max_model_len {limits.max_model_len}"
        )
    if limits.kv_capacity_tokens is not None and total > limits.kv_capacity_tokens:
        return f"{total} tokens do not fit the KV cache of {limits.kv_capacity_tokens}"
    if limits.vocab_size is not None and not 0 <= min(prompt) <= max(prompt) < limits.vocab_size:
        return f"a prompt token id is outside the vocabulary of {limits.vocab_size}"
    return _sampling_refusal(sampling, limits.vocab_size)


def _sampling_refusal(sampling: SamplingSettings, vocab_size: int | None) -> str | None:
    if 0.0 < sampling.temperature < MIN_TEMPERATURE:
        return (
            f"temperature {sampling.temperature:g} is neither 0 nor at least {MIN_TEMPERATURE}; "
            "vLLM would raise it without a word"
        )
    for what, ids, most in (
        ("allowed_token_ids", sampling.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS),
        ("logprob_token_ids", sampling.logprob_token_ids, MAX_LOGPROB_TOKEN_IDS),
    ):
        if len(ids) > most:
            return f"{len(ids)} {what}, the limit is {most}"
        if ids and vocab_size is not None and not 0 <= min(ids) <= max(ids) < vocab_size:
            return f"one of {what} is outside the vocabulary of {vocab_size}"
    return None


def sampling_params(sampling: SamplingSettings) -> "SamplingParams":
    """Return vLLM's form of the settings; one object serves all requests that share them.

    Text is made only where stop strings need it. `skip_clone` has vLLM copy the object per
    request shallowly: it sets a few scalars on the copy and shares the lists, which it only
    reads (0.32, InputProcessor.process_inputs).

    Raises:
        request_errors(): vLLM does not take these settings.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        ignore_eos=sampling.ignore_eos,
        allowed_token_ids=list(sampling.allowed_token_ids) or None,
        logprob_token_ids=list(sampling.logprob_token_ids) or None,
        structured_outputs=(
            None
            if sampling.json_schema is None
            else StructuredOutputsParams(json=sampling.json_schema)
        ),
        flat_logprobs=True,
        detokenize=bool(sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def request_errors() -> tuple[type[Exception], ...]:
    """Return what vLLM raises for one request that it does not take, and stays sound."""
    from vllm.exceptions import VLLMError

    return (VLLMError, ValueError, TypeError, RuntimeError)


def first_line(error: Exception) -> str:
    """Return the error's message without the value that vLLM adds; it may be long."""
    message = str(error.args[0]) if error.args else type(error).__name__
    return (message.splitlines() or [""])[0][:300]


def answer_of_output(number: int, sampling: SamplingSettings, output: "RequestOutput") -> Answer:
    """Return the answer that vLLM's finished output is; the end token is among its tokens."""
    made = output.outputs[0]
    if made.finish_reason not in _FINISH_REASONS:
        # "error" comes of a grammar that does not compile, once it is in the engine.
        return refused(number, f"vLLM ended it with {made.finish_reason!r} (its json_schema?)")
    stop_reason = made.stop_reason
    queue_s, ttft_s, tpot_s = _timings(len(made.token_ids), output.metrics)
    return Answer(
        number=number,
        token_ids=tuple(made.token_ids),
        finish_reason="stop" if made.finish_reason == "stop" else "length",
        stop_reason=None if stop_reason is None else str(stop_reason),
        num_cached_tokens=output.num_cached_tokens,
        logprobs=_logprobs(len(sampling.logprob_token_ids), made.logprobs),
        queue_s=queue_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
    )


def refused(number: int, error: str) -> Answer:
    """Return the answer to a request that the engine did not take."""
    return Answer(number=number, token_ids=(), finish_reason="stop", error=error[:500])


def _logprobs(num_asked: int, logprobs: object) -> tuple[float, ...]:
    """Return what was asked for at the first output token, in the order asked.

    vLLM puts the sampled token first, then those asked for, then padding of token id 0: by
    place and not by id, or padding would hide the true value of token 0.
    """
    if not num_asked or not logprobs:
        return ()
    flat = cast("FlatLogprobs", logprobs)
    start = flat.start_indices[0] + 1
    return tuple(flat.logprobs[start : start + num_asked])


def _timings(
    num_tokens: int, stats: "RequestStateStats | None"
) -> tuple[float | None, float | None, float | None]:
    """Return queue_s, ttft_s and tpot_s; only of vLLM's monotonic readings, in seconds."""
    if stats is None or not stats.first_token_ts:
        return None, None, None
    decode_s = stats.last_token_ts - stats.first_token_ts
    return (
        stats.scheduled_ts - stats.queued_ts,
        stats.first_token_ts - stats.queued_ts,
        decode_s / (num_tokens - 1) if num_tokens > 1 else None,
    )
