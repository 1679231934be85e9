"""History: what the last runs of a job took, for a forecast; only the last ones are read.

A run that is damaged, or of an older format, counts as none: a forecast is not the place to
say so.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from statistics import median

from pipelines.attempt_log import read_attempts
from pipelines.ledger import LINEAGE_KEY, commits_of, committed_batches, recent_runs
from pipelines.step_costs import Requests, cost, step_costs
from pipelines.storage import Store
from pipelines.tables import read_own
from schemas.commits import AttemptEnd
from schemas.errors import VerificationError
from schemas.lineage import LINEAGE, BatchLineage
from schemas.step_sums import StepSums

MAX_RUNS = 8
_MAX_RUNS_OF_OUTPUT = 3
_MAX_COMMITS = 64
_NUM_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """One earlier run, or what is committed of this one: its batches and its attempts' ends."""

    batches: tuple[BatchLineage, ...]
    ends: tuple[AttemptEnd, ...]

    @property
    def busy_s(self) -> float:
        """Seconds of engine steps of its batches."""
        return sum(one.device_s for one in self.batches) / self.batches[-1].num_devices

    @property
    def is_planned_by_maximum(self) -> bool:
        """Whether its plan expected every answer to be as long as it may be."""
        return sum(b.predicted_output_tokens for b in self.batches) == sum(
            b.max_output_tokens for b in self.batches
        )

    @property
    def output_ratio(self) -> float:
        """Output tokens that came over those that its plan predicted."""
        predicted = sum(one.predicted_output_tokens for one in self.batches)
        came = sum(one.num_output_tokens for one in self.batches)
        return came / predicted if predicted else 1.0

    def requests(self) -> list[Requests]:
        """Return the requests of its batches, as they came."""
        return [
            Requests(
                num_requests=one.num_requests,
                num_prompt_tokens=one.num_prompt_tokens,
                num_cached_tokens=one.num_cached_tokens,
                num_output_tokens=one.num_output_tokens,
            )
            for one in self.batches
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last runs of a job on one kind of device, the latest first; at least one."""

    runs: tuple[EarlierRun, ...]

    @property
    def batches(self) -> list[BatchLineage]:
        """The batches of all runs."""
        return list(chain.from_iterable(run.batches for run in self.runs))

    @property
    def sums(self) -> StepSums:
        """All steps of all attempts."""
        total = StepSums()
        for end in self._ends:
            total = total.plus(end.step_sums)
        return total

    def cost(self, batches: Sequence[Requests]) -> float:
        """Return what these cost by the steps of all runs (see `step_costs.cost`)."""
        sums = self.sums
        return cost(batches, step_costs(sums), sums.sampled_per_step)

    @property
    def seconds_over_cost(self) -> tuple[float, ...]:
        """Return, for each run, the seconds of its steps over what its batches cost."""
        return tuple(run.busy_s / self.cost(run.requests()) for run in self.runs)

    @property
    def load_s(self) -> float:
        """Seconds until an engine was ready, at the median start of the last runs."""
        return median([end.load_s for end in self._ends if end.load_s > 0] or [0.0])

    @property
    def end_s(self) -> float:
        """Seconds held after the last step, at the median."""
        return median([end.tail_idle_s for end in self._ends if end.busy_s > 0] or [0.0])

    @property
    def idle_fraction(self) -> float:
        """Seconds without a step, while there was work, over those of steps."""
        busy_s = sum(end.busy_s for end in self._ends)
        return sum(end.idle_s for end in self._ends) / busy_s if busy_s else 0.0

    @property
    def cached_fraction(self) -> float:
        """Prompt tokens that came from the prefix cache, of all."""
        prompt = sum(one.num_prompt_tokens for one in self.batches)
        return sum(one.num_cached_tokens for one in self.batches) / prompt if prompt else 0.0

    def output_ratios(self, *, by_maximum: bool) -> tuple[float, ...]:
        """Return the output ratios of runs that were planned in the same way."""
        alike = [run for run in self.runs if run.is_planned_by_maximum == by_maximum]
        return tuple(run.output_ratio for run in alike)

    @property
    def _ends(self) -> list[AttemptEnd]:
        return list(chain.from_iterable(run.ends for run in self.runs))


def history_of(
    outputs: Sequence[Store], *, weights_hash: str, engine: str, run: Store | None = None
) -> History | None:
    """Return what the last runs at these outputs took, and what `run` took so far.

    Only batches with these weights and this engine count, on the device that was used last.
    None where there are none.
    """

    def comparable(batches: Sequence[BatchLineage]) -> tuple[BatchLineage, ...]:
        return tuple(
            one
            for one in batches
            if (one.weights_hash, one.engine) == (weights_hash, engine)
            and one.num_requests
            and one.device_s > 0
            and one.num_prompt_tokens + one.num_output_tokens > 0
        )

    with ThreadPoolExecutor(max_workers=_NUM_READERS) as readers:
        latest_first = [*outputs[:1], *reversed(outputs[1:])]
        stores = [*readers.map(_runs_of, latest_first)]
        in_order = [*([] if run is None else [run]), *chain.from_iterable(stores)]
        own = None if run is None else run.uri
        unique = {store.uri: store for store in in_order}
        found = readers.map(
            lambda store: _read(store, is_open=store.uri == own), list(unique.values())[:MAX_RUNS]
        )
        runs = [
            EarlierRun(batches=comparable(batches), ends=ends) for batches, ends in found if batches
        ]
    runs = [one for one in runs if one.batches]
    device = _device(runs[0]) if runs else None
    alike = tuple(one for one in runs if _device(one) == device)
    return History(runs=alike) if alike else None


def _device(run: EarlierRun) -> tuple[str, int]:
    return run.batches[-1].device_name, run.batches[-1].num_devices


def _runs_of(output: Store) -> list[Store]:
    try:
        keys = recent_runs(output, most=_MAX_RUNS_OF_OUTPUT)
    except VerificationError:
        return []
    return [output.child(key) for key in keys]


def _read(
    store: Store, *, is_open: bool
) -> tuple[tuple[BatchLineage, ...], tuple[AttemptEnd, ...]]:
    """Return the batches and the ends of a run; none where it is damaged."""
    try:
        return _batches(store, is_open=is_open), read_attempts(store).ends
    except (FileNotFoundError, VerificationError, TypeError):
        return (), ()


def _batches(store: Store, *, is_open: bool) -> tuple[BatchLineage, ...]:
    if is_open:
        names = sorted(committed_batches(store))[:_MAX_COMMITS]
        return tuple(commit.lineage for commit in commits_of(store, names))
    table = read_own(store.get(LINEAGE_KEY), LINEAGE, key=LINEAGE_KEY)
    return tuple(BatchLineage(**row) for row in table.to_pylist())
