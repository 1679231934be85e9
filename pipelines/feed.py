"""The rolling feed: which requests are in the engine, and which go in next.

Batches are never barriers: requests of the next batch follow as soon as there is room. When
an engine dies, what was in it is asked again in halves, alone, until the request that kills
it is found; everything else waits behind.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from pipelines.asking import Asking, row_sampling
from pipelines.open_batch import OpenBatch
from pipelines.plan_parts import BatchRows
from pipelines.prediction import Learning, Prediction, fixed_lengths
from pipelines.row_prompts import prompts_of
from pipelines.window import Held, Window
from schemas.errors import EngineDiedError
from schemas.plans import PlannedBatch
from schemas.prompts import Fault
from schemas.requests import Answer, EngineRequest, SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an engine request belongs: batch, request of the batch, ask of the request."""

    batch: OpenBatch
    request: int
    ask: int


class Feed:
    """Requests of pending batches, in plan order, within a window."""

    def __init__(
        self,
        batches: Iterator[BatchRows],
        asking: Asking,
        sampling: SamplingSettings,
        prediction: Prediction,
        *,
        may_begin: Callable[[PlannedBatch], bool] = lambda _batch: True,
    ) -> None:
        """Feed these batches; they are read as they are needed, and begun if they may be."""
        self._batches = batches
        self._may_begin = may_begin
        self._next: BatchRows | None = None
        self._asking = asking
        self.first_asks = asking.first_asks
        self._sampling = sampling
        self._next_number = 0
        self._next_group = 0
        self._waiting: deque[tuple[EngineRequest, _Place]] = deque()
        self._in_engine: dict[int, tuple[EngineRequest, _Place]] = {}
        self._held = Held()
        is_one = asking.num_asks == 1
        self._learning = Learning(prediction if is_one else fixed_lengths("several asks"))
        self._tries: Counter[int] = Counter()
        self._suspects: list[list[tuple[EngineRequest, _Place]]] = []
        self._is_exhausted = False
        self.is_held = False
        self._num_answered = 0
        self._is_fresh = True
        self._is_alone_in_fresh = False
        self.num_condemned = 0
        self.open_batches: dict[int, OpenBatch] = {}
        self.without_requests: deque[OpenBatch] = deque()

    @property
    def is_done(self) -> bool:
        """Whether everything that was begun is answered, and no more is to be begun."""
        is_over = self._is_exhausted or self.is_held
        return is_over and not (self._waiting or self._in_engine or self._suspects)

    @property
    def num_in_engine(self) -> int:
        """Engine requests asked and not yet answered."""
        return len(self._in_engine)

    @property
    def is_dry(self) -> bool:
        """Whether everything was asked: nothing more goes into the engine unless it dies."""
        return self._is_exhausted and not (self._waiting or self._suspects)

    def has_requests(self) -> bool:
        """Whether something waits for an engine; reads batches until that is known."""
        while not self._waiting and not self._suspects:
            if not self._read_batch():
                return False
        return True

    def next_requests(self, window: Window) -> list[EngineRequest]:
        """Return the requests that go into the engine now; they count as in it.

        While an engine killer is sought, only one group of suspects is in the engine.
        """
        if self._suspects:
            return [] if self._in_engine else self._enter(self._suspects_to_try())
        entering: list[tuple[EngineRequest, _Place]] = []
        while len(self._in_engine) + len(entering) < window.num_requests:
            if not self._waiting and not self._read_batch():
                break
            if not self._waiting:
                continue
            request = self._waiting[0][0]
            size = self._num_tokens(request)
            if not self._held.has_room(size, window):
                break
            self._held.add(request.number, size)
            entering.append(self._waiting.popleft())
        return self._enter(entering)

    def answered(self, answer: Answer) -> OpenBatch | None:
        """Note the answer; return its batch if that was the last one it waited for.

        Raises:
            EngineDiedError: the engine answered what is not in it; nothing of it is trusted.
        """
        if answer.number not in self._in_engine:
            raise EngineDiedError(
                f"the engine answered request {answer.number}, which is not in it"
            )
        request, place = self._in_engine.pop(answer.number)
        self._held.remove(request.number)
        del self._tries[request.number]
        self._num_answered += 1
        if answer.error is not None:
            place.batch.faults[place.request] = Fault("BAD_SAMPLING", answer.error)
        else:
            place.batch.answers[place.request][place.ask] = answer
            num_prompt, num_output = len(request.prompt_token_ids), len(answer.token_ids)
            self._learning.learn(num_prompt, num_output, num_unanswered=len(self._in_engine))
        return self._closed(place.batch)

    def engine_died(self, *, is_stall: bool) -> OpenBatch | None:
        """Take back what was in the engine; a request that is proven to kill it is a fault.

        Proven: it was the first and only request of a new engine, not for the first time in
        one that died, and engines have answered others. Without an answer to anything the
        engine is to blame, and no row is.

        Returns the batch that is complete by the condemned request, if there is one.
        """
        suspects = list(self._in_engine.values())
        was_alone, self._is_fresh = self._is_alone_in_fresh, True
        self._in_engine, self._held = {}, Held()
        if was_alone and not self._num_answered:
            self._suspects.insert(0, suspects)
            return None
        if was_alone and suspects and self._tries[suspects[0][0].number] > 1:
            request, place = suspects[0]
            self.num_condemned += 1
            code, what = ("TIMEOUT", "stalled") if is_stall else ("ENGINE_CRASH", "died")
            num_tries = self._tries[request.number]
            message = f"the engine {what} with this request alone in it, after {num_tries} tries"
            place.batch.faults[place.request] = Fault(code, message)
            return self._closed(place.batch)
        middle = (len(suspects) + 1) // 2
        self._suspects += [half for half in (suspects[middle:], suspects[:middle]) if half]
        return None

    def _enter(self, entering: list[tuple[EngineRequest, _Place]]) -> list[EngineRequest]:
        if entering:
            self._is_alone_in_fresh = self._is_fresh and len(entering) == 1
            self._is_fresh = False
        for request, place in entering:
            self._in_engine[request.number] = (request, place)
            self._tries[request.number] += 1
            tries = place.batch.tries
            tries[place.request] = max(tries[place.request], self._tries[request.number])
            if place.batch.first_step_at is None:
                place.batch.first_step_at = datetime.now(UTC)
        return [request for request, _ in entering]

    def _suspects_to_try(self) -> list[tuple[EngineRequest, _Place]]:
        for request, _ in self._suspects[-1]:
            self._held.add(request.number, self._num_tokens(request))
        return self._suspects.pop()

    def _num_tokens(self, request: EngineRequest) -> int:
        """Return the tokens that a request may come to hold, as far as answers so far say."""
        num_prompt, most = len(request.prompt_token_ids), request.sampling.max_tokens
        return num_prompt + self._learning.high(num_prompt, most)

    def _closed(self, batch: OpenBatch) -> OpenBatch | None:
        batch.num_open -= 1
        if batch.num_open:
            return None
        del self.open_batches[batch.group]
        return batch

    def _read_batch(self) -> bool:
        """Read the next batch into the queue; false where there is none, or it must not begin.

        One that is held back is asked for again: what is left may come to be enough for it.
        """
        cut = self._next or next(self._batches, None)
        if cut is None:
            self._is_exhausted = True
            return False
        self.is_held = cut.batch.num_requests > 0 and not self._may_begin(cut.batch)
        self._next = cut if self.is_held else None
        if self.is_held:
            return False
        batch = OpenBatch(
            group=self._next_group,
            cut=cut,
            answers=[[None] * self._asking.num_asks for _ in range(cut.batch.num_requests)],
            tries=[0] * cut.batch.num_requests,
        )
        self._next_group += 1
        for i, (prompts, sampling) in enumerate(_requests(cut, self._sampling)):
            for ask, (prompt, settings) in enumerate(self._asking.asks(prompts, sampling)):
                request = EngineRequest(
                    number=self._next_number,
                    group=batch.group,
                    prompt_token_ids=prompt,
                    sampling=settings,
                )
                self._next_number += 1
                self._waiting.append((request, _Place(batch=batch, request=i, ask=ask)))
                batch.num_open += 1
        if batch.num_open:
            self.open_batches[batch.group] = batch
        else:
            self.without_requests.append(batch)
        return True


def _requests(
    cut: BatchRows, sampling: SamplingSettings
) -> Iterator[tuple[list[tuple[int, ...]], SamplingSettings]]:
    rows: pa.Table = cut.rows.slice(0, cut.batch.num_requests)
    columns = [
        rows[name].to_pylist()
        for name in ("prompt_token_ids", "question_token_ids", "max_tokens", "temperature", "seed")
    ]
    for shared, tails, max_tokens, temperature, seed in zip(*columns, strict=True):
        own = row_sampling(sampling, max_tokens, temperature, seed)
        yield prompts_of(shared, tails), own
