"""Tune: a short search for the settings with which a job's own prompts go fastest.

Each trial answers the same sample (tuning_sample.py), from an empty prefix cache; nothing of
it is kept. Sequences and tokens of a step are changed in a running engine; an
engine is started once for each mode, eager and compiled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pipelines.engines import Engine
from schemas.errors import SettingsError
from schemas.requests import EngineRequest
from schemas.tunings import Trial

_MIN_REQUESTS = 32
_NUM_WARM_UP = 16
_POLL_S = 5.0
_SHARE_OF_TRIALS = 0.75
"""Of the time is planned for trials; the rest is loading and what was guessed wrong."""
_NUM_TRIALS = 8


class TunableEngine(Engine, Protocol):
    """An engine whose steps can be made smaller while it runs."""

    def limit(self, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        """Let steps hold no more than this, and forget cached prompts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """What a trial is made with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    is_compiled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was tried, over `num_requests` requests, and what there was no time for."""

    trials: tuple[Trial, ...]
    num_requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    left_out: tuple[Combination, ...]


def combinations(
    num_seqs: int, num_batched_tokens: int, *, modes: Sequence[bool]
) -> tuple[Combination, ...]:
    """Return what to try: both numbers halved, as they are and doubled, the likeliest first.

    `modes` says whether to compile, in the order in which they are tried.
    """
    factors = [(1, 1), (0.5, 1), (2, 1), (1, 2), (1, 0.5), (2, 2), (0.5, 0.5), (0.5, 2), (2, 0.5)]
    pairs = [(max(1, int(num_seqs * a)), max(32, int(num_batched_tokens * b))) for a, b in factors]
    return tuple(
        Combination(max_num_seqs=seqs, max_num_batched_tokens=tokens, is_compiled=is_compiled)
        for is_compiled in modes
        for seqs, tokens in dict.fromkeys(pairs)
        if tokens >= seqs
    )


def search(
    sample: Sequence[EngineRequest],
    wanted: Sequence[Combination],
    open_engine: Callable[[Combination], TunableEngine],
    *,
    budget_s: float,
    compile_s: float,
    on_note: Callable[[str], None] = lambda _note: None,
) -> Search:
    """Try the combinations for about `budget_s` seconds, starts of engines included.

    `open_engine` starts an engine for steps of this size at most. Compiled ones come last, with
    the best eager combination first, and only if `compile_s` more seconds are left for that.

    Raises:
        SettingsError, EngineDiedError: an engine does not start, or dies.
    """
    trying = _Trying(sample, open_engine, time.monotonic() + budget_s, budget_s, on_note)
    eager = [one for one in wanted if not one.is_compiled]
    compiled = [one for one in wanted if one.is_compiled]
    left_out = trying.mode(eager) if eager else []
    if compiled and trying.has_time_for(compile_s if trying.trials else 0.0):
        best = max(trying.trials, key=lambda one: one.tokens_per_s, default=None)
        left_out += trying.mode(_best_first(compiled, best))
    else:
        left_out += compiled
    used = trying.sample
    return Search(
        trials=tuple(trying.trials),
        num_requests=len(used),
        mean_prompt_tokens=sum(len(one.prompt_token_ids) for one in used) / len(used),
        mean_output_tokens=sum(one.sampling.max_tokens for one in used) / len(used),
        left_out=tuple(left_out),
    )


def _best_first(compiled: Sequence[Combination], best: Trial | None) -> list[Combination]:
    """Return the combinations with the best eager one first, then smaller ones alone.

    What is compiled is good for one size of a step: that of the engine's start.
    """
    if best is None:
        return list(compiled)
    seqs, tokens = best.max_num_seqs, best.max_num_batched_tokens
    first = Combination(max_num_seqs=seqs, max_num_batched_tokens=tokens, is_compiled=True)
    smaller = [
        one
        for one in compiled
        if one != first and one.max_num_seqs <= seqs and one.max_num_batched_tokens <= tokens
    ]
    return [first, *smaller[:1]]


def _filled(wanted: Sequence[Combination], num_requests: int) -> list[Combination]:
    """Return the combinations with no more sequences than the sample can fill, each once."""
    held = [replace(one, max_num_seqs=min(one.max_num_seqs, num_requests)) for one in wanted]
    return list(dict.fromkeys(held))


class _Trying:
    """Trials so far, the sample that all of them answer, and the time that is left."""

    def __init__(
        self,
        requests: Sequence[EngineRequest],
        open_engine: Callable[[Combination], TunableEngine],
        ends_s: float,
        budget_s: float,
        on_note: Callable[[str], None],
    ) -> None:
        self.trials: list[Trial] = []
        self.sample: Sequence[EngineRequest] = requests
        self._is_cut = False
        self._open_engine = open_engine
        self._ends_s = ends_s
        self._trial_s = budget_s * _SHARE_OF_TRIALS / _NUM_TRIALS
        self._on_note = on_note
        self._longest_s = 0.0

    def has_time_for(self, extra_s: float) -> bool:
        """Return whether a trial and `extra_s` more seconds are left."""
        return time.monotonic() + self._longest_s + extra_s <= self._ends_s

    def mode(self, wanted: Sequence[Combination]) -> list[Combination]:
        """Try these with one engine, in order; return those there was no time for."""
        largest = replace(
            wanted[0],
            max_num_seqs=max(one.max_num_seqs for one in wanted),
            max_num_batched_tokens=max(one.max_num_batched_tokens for one in wanted),
        )
        with self._open_engine(largest) as engine:
            load_s = engine.facts.load_s
            self._warm_up(engine)
            feasible = _filled(wanted, len(self.sample))
            for place, one in enumerate(feasible):
                if self.trials and not self.has_time_for(0.0):
                    return feasible[place:]
                self._try(engine, one, load_s)
        return []

    def _warm_up(self, engine: TunableEngine) -> None:
        """Answer a few requests; by their speed the sample is cut to a trial's time, once."""
        few = self.sample[:: max(1, len(self.sample) // _NUM_WARM_UP)][:_NUM_WARM_UP]
        seconds, _ = _answered(engine, few)
        if not self._is_cut:
            wanted = max(_MIN_REQUESTS, round(len(few) * self._trial_s / seconds))
            self.sample = self.sample[:: max(1, -(-len(self.sample) // wanted))]
            self._is_cut = True

    def _try(self, engine: TunableEngine, one: Combination, load_s: float) -> None:
        engine.limit(
            max_num_seqs=one.max_num_seqs, max_num_batched_tokens=one.max_num_batched_tokens
        )
        seconds, (num_steps, num_preemptions) = _answered(engine, self.sample)
        self._longest_s = max(self._longest_s, seconds)
        num_tokens = sum(len(r.prompt_token_ids) + r.sampling.max_tokens for r in self.sample)
        trial = Trial(
            max_num_seqs=one.max_num_seqs,
            max_num_batched_tokens=one.max_num_batched_tokens,
            is_compiled=one.is_compiled,
            tokens_per_s=num_tokens / seconds,
            load_s=load_s,
            num_steps=num_steps,
            num_preemptions=num_preemptions,
        )
        self.trials.append(trial)
        mode: Literal["compiled", "eager"] = "compiled" if one.is_compiled else "eager"
        self._on_note(
            f"{mode}, {one.max_num_seqs} sequences, {one.max_num_batched_tokens} tokens a step: "
            f"{trial.tokens_per_s:,.0f} tokens/s in {seconds:.1f} s"
        )


def _answered(engine: Engine, requests: Sequence[EngineRequest]) -> tuple[float, tuple[int, int]]:
    """Answer all requests; return the seconds it took, and engine steps and preemptions."""
    began = time.monotonic()
    engine.submit(requests)
    left, num_steps, num_preemptions = len(requests), 0, 0
    while left:
        poll = engine.poll(_POLL_S)
        left -= len(poll.answers)
        num_steps += len(poll.steps)
        num_preemptions += sum(step.num_preemptions for step in poll.steps)
        for answer in poll.answers:
            if answer.error is not None:
                raise SettingsError(f"a request of the sample was refused: {answer.error}")
    return max(time.monotonic() - began, 1e-9), (num_steps, num_preemptions)
