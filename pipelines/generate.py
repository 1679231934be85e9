"""Generate: the planned batches go through the engine; each commits when its last row is done.

The device is fed without a barrier. Texts, tables and commits are made by a writer thread
while the engine goes on. A dead engine is replaced, and what it had not answered is asked
again; a request that kills engines is rejected, its neighbours are not.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pipelines.accounting import Spent, Telling
from pipelines.answered import AnsweredBatch
from pipelines.asking import Asking
from pipelines.engines import Engine
from pipelines.feed import Feed
from pipelines.limits import Gate
from pipelines.open_batch import OpenBatch
from pipelines.plan_parts import BatchRows
from pipelines.prediction import Prediction
from pipelines.window import Window
from schemas.commits import Commit
from schemas.errors import EngineDiedError, StoppedByLimitError
from schemas.plans import PlannedBatch
from schemas.requests import SamplingSettings

_POLL_S = 0.5
_MAX_COMMITS_WAITING = 4
_MAX_DEATHS_AT_START = 3
_MAX_DEATHS_WITHOUT_ANSWER = 16
"""Halving a window of 2^14 requests takes 14 deaths until the killer is alone, twice."""


def generate(
    batches: Iterable[BatchRows],
    open_engine: Callable[[], Engine],
    asking: Asking,
    sampling: SamplingSettings,
    publish: Callable[[AnsweredBatch], Commit],
    *,
    prediction: Prediction,
    epoch: int,
    spent: Spent,
    gate: Gate,
    on_progress: Callable[[Telling], None] = lambda _telling: None,
) -> None:
    """Answer the requests of `batches` and publish each batch; `spent` keeps the books.

    `publish` is called from one writer thread, in the order in which batches finish. However
    this ends, every batch that had finished is published, and no engine is left running.

    Raises:
        StoppedByLimitError: no further batch fits into a limit; what is unfinished is pending.
        EngineDiedError: engines died at three starts in a row, or too often.
    """

    def may_begin(batch: PlannedBatch) -> bool:
        is_begun = gate.may_begin(batch, time.monotonic())
        if is_begun:
            gate.begun(batch)
        return is_begun

    feed = Feed(_ahead(batches), asking, sampling, prediction, may_begin=may_begin)
    work = _Work(feed, open_engine, publish, epoch, spent, gate, on_progress)
    try:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit") as writer:
            work.run(writer)
    finally:
        work.close()


def _ahead(batches: Iterable[BatchRows]) -> Iterator[BatchRows]:
    """Yield the batches; the next one is read while this one is used."""
    source = iter(batches)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read") as reader:
        waiting = reader.submit(next, source, None)
        while (cut := waiting.result()) is not None:
            waiting = reader.submit(next, source, None)
            yield cut


class _Work:
    """One attempt's engines, feed and writer."""

    def __init__(
        self,
        feed: Feed,
        open_engine: Callable[[], Engine],
        publish: Callable[[AnsweredBatch], Commit],
        epoch: int,
        spent: Spent,
        gate: Gate,
        on_progress: Callable[[Telling], None],
    ) -> None:
        self._feed = feed
        self._open_engine = open_engine
        self._publish = publish
        self._epoch = epoch
        self.spent = spent
        self._gate = gate
        self._on_progress = on_progress
        self._engine: Engine | None = None
        self._window: Window | None = None
        self._commits: deque[tuple[Future[Commit], float]] = deque()
        self._deaths_at_start = 0
        self._deaths_without_answer = 0
        self._published_s = 0.0

    def run(self, writer: ThreadPoolExecutor) -> None:
        """Feed until everything is answered, end the engine, and wait for the commits.

        In this order: while the last batches are written no device is held.
        """
        try:
            while not self._feed.is_done:
                self._round(writer)
            if self._feed.is_held:
                raise StoppedByLimitError(self._gate.said(time.monotonic()))
        finally:
            self._end_engine()
            self._reap(max_waiting=0)

    def close(self) -> None:
        """Close the books: steps that no commit of ours holds are wasted."""
        self._end_engine()
        busy_s = self.spent.meter.busy_s
        self.spent.wasted_s = max(0.0, busy_s - self._published_s / self.spent.num_devices)

    def _round(self, writer: ThreadPoolExecutor) -> None:
        """Feed, take what came back, and hand on the batches that are complete by it."""
        self._gate.check(time.monotonic())
        try:
            if self._engine is None and self._feed.has_requests():
                self._start_engine()
            self._exchange(writer)
        except EngineDiedError as death:
            self._bury_engine(writer, death)
        while self._feed.without_requests:
            self._finish(writer, self._feed.without_requests.popleft())
        self._reap(max_waiting=_MAX_COMMITS_WAITING)

    def _start_engine(self) -> None:
        """Open an engine and wait until it is ready.

        One that was held before, idle or loading, is on this bill from then on.
        """
        asked_s = time.monotonic()
        self.spent.start(asked_s)
        load_s = 0.0
        try:
            self._engine = engine = self._open_engine()
            self.spent.start(engine.held_since_s)
            self.spent.ready(engine.facts)
            self._window = Window.of(engine.facts)
            load_s = engine.facts.load_s
            self._deaths_at_start = 0
        finally:
            self.spent.load_s += max(load_s, time.monotonic() - asked_s)
            self.spent.tick()

    def _end_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            self.spent.tick()

    def _exchange(self, writer: ThreadPoolExecutor) -> None:
        """Submit what there is room for, and take steps and answers."""
        facts = self.spent.facts
        if self._engine is None or self._window is None or facts is None:
            return
        requests = self._feed.next_requests(self._window)
        if requests:
            self._engine.submit(requests)
        self.spent.tail.note(time.monotonic(), is_dry=self._feed.is_dry)
        if not self._feed.num_in_engine:
            return
        poll = self._engine.poll(self._gate.waits_s(time.monotonic(), _POLL_S))
        self.spent.tick()
        self.spent.num_steps += len(poll.steps)
        for step in poll.steps:
            self.spent.add(step)
            if not step.num_waiting and not self._feed.is_dry:
                self._window = self._window.grown(facts)
        for answer in poll.answers:
            self._deaths_without_answer = 0
            self.spent.num_output_tokens += len(answer.token_ids)
            self.spent.num_cached_tokens += answer.num_cached_tokens or 0
            finished = self._feed.answered(answer)
            if finished is not None:
                self._finish(writer, finished)
        self._on_progress(Telling(spent=self.spent, poll=poll))

    def _bury_engine(self, writer: ThreadPoolExecutor, death: EngineDiedError) -> None:
        """Put a dead engine away and take back its requests; the next round starts another.

        Raises:
            EngineDiedError: this one, where a further engine would only die again.
        """
        self._end_engine()
        self.spent.num_restarts += 1
        self._deaths_at_start += 1
        self._deaths_without_answer += 1
        if self._deaths_at_start >= _MAX_DEATHS_AT_START:
            raise EngineDiedError(
                f"{self._deaths_at_start} engines in a row were never ready; the last: {death}"
            ) from death
        if self._deaths_without_answer >= _MAX_DEATHS_WITHOUT_ANSWER:
            raise EngineDiedError(
                f"{self._deaths_without_answer} engines in a row gave no answer, then: {death}"
            ) from death
        num_condemned = self._feed.num_condemned
        finished = self._feed.engine_died(is_stall=death.is_stall)
        if self._feed.num_condemned > num_condemned:
            self._deaths_without_answer = 0
        if finished is not None:
            self._finish(writer, finished)

    def _finish(self, writer: ThreadPoolExecutor, batch: OpenBatch) -> None:
        use = self.spent.meter.use(batch.group)
        self.spent.tick()
        answered = AnsweredBatch(
            batch=batch.cut.batch,
            rows=batch.cut.rows,
            answers=batch.found(),
            first_asks=self._feed.first_asks,
            tries=tuple(batch.tries),
            use=use,
            so_far=self.spent.so_far(self._gate.usd_per_device_hour),
            first_step_at=batch.first_step_at,
            facts=self.spent.facts if batch.cut.batch.num_requests else None,
        )
        self.spent.num_rows += batch.cut.batch.num_rows
        self.spent.num_batches += 1
        self._commits.append((writer.submit(self._publish_timed, answered), use.device_s))

    def _publish_timed(self, answered: AnsweredBatch) -> Commit:
        started = time.monotonic()
        commit = self._publish(answered)
        self._gate.committed(time.monotonic() - started)
        return commit

    def _reap(self, *, max_waiting: int) -> None:
        """Take the results of finished commits; wait while more than `max_waiting` are not.

        Device time of a batch that another attempt committed first is a waste, like that of
        batches whose commit failed or that never were complete.
        """
        while self._commits and (self._commits[0][0].done() or len(self._commits) > max_waiting):
            commit, device_s = self._commits.popleft()
            if commit.result().epoch == self._epoch:
                self._published_s += device_s
