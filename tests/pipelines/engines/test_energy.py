import pytest

from pipelines.engines.energy import EnergyMeter, NvmlCounter
from schemas.requests import StepStats


class CountsUp:
    """A counter that tells these readings one after the other."""

    def __init__(self, *readings: float | None) -> None:
        self._readings = iter(readings)

    def joules(self) -> float | None:
        return next(self._readings)


class FakeNvml:
    """Two GPUs; the second counts nothing if it is too old."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, is_old: bool = False) -> None:
        self._is_old = is_old

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self._is_old and handle == 1:
            raise self.NVMLError
        return 1500 + handle * 500


def step(duration_s: float) -> StepStats:
    return StepStats(
        started_s=0.0,
        duration_s=duration_s,
        num_running=1,
        num_waiting=0,
        kv_usage_fraction=0.0,
        num_preemptions=0,
        work=(),
    )


def test_steps_share_what_was_used_since_the_reading_before_by_their_time():
    meter = EnergyMeter(CountsUp(100.0, 106.0, 107.0))

    assert [one.energy_j for one in meter.metered([step(1.0), step(2.0)])] == [2.0, 4.0]
    assert [one.energy_j for one in meter.metered([step(5.0)])] == [1.0]


def test_what_is_used_while_nothing_is_asked_is_on_no_step():
    meter = EnergyMeter(CountsUp(100.0, 200.0, 203.0))
    meter.skip()

    assert [one.energy_j for one in meter.metered([step(1.0)])] == [3.0]


@pytest.mark.parametrize("counter", [None, CountsUp(None, None), CountsUp(1.0, None)])
def test_energy_that_is_not_metered_is_none_and_not_zero(counter):
    meter = EnergyMeter(counter)

    assert [one.energy_j for one in meter.metered([step(1.0)])] == [None]


def test_nvml_counts_millijoules_of_all_gpus_of_the_engine():
    assert NvmlCounter(FakeNvml(), [0, 1]).joules() == 3.5
    assert NvmlCounter(FakeNvml(is_old=True), [0, 1]).joules() is None
