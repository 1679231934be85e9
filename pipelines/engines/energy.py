"""The energy that the engine's GPUs use, read from their own counters while it answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from schemas.requests import StepStats


class Counter(Protocol):
    """Something that counts energy upwards; None where it cannot be read."""

    def joules(self) -> float | None:
        """Return joules since some fixed moment."""
        ...


class NvmlCounter:
    """The sum of what these GPUs have used since their driver was loaded.

    Source: NVML, nvmlDeviceGetTotalEnergyConsumption: millijoules, from Volta on, brought up to
    date by the driver several times a second.
    """

    def __init__(self, nvml: Any, indices: Sequence[int]) -> None:  # noqa: ANN401 (pynvml)
        """Read the GPUs with these numbers of the machine."""
        self._nvml = nvml
        nvml.nvmlInit()
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]

    def joules(self) -> float | None:
        """Return their joules; None for a GPU that does not count."""
        try:
            return sum(
                self._nvml.nvmlDeviceGetTotalEnergyConsumption(one) / 1000 for one in self._handles
            )
        except self._nvml.NVMLError:
            return None


class EnergyMeter:
    """Gives steps the energy that was used since the reading before them."""

    def __init__(self, counter: Counter | None) -> None:
        """Read this counter; None: nothing is metered."""
        self._counter = counter
        self._last_j = self._read()

    def skip(self) -> None:
        """Leave out what was used until now: nothing was asked."""
        self._last_j = self._read()

    def metered(self, steps: Sequence[StepStats]) -> Sequence[StepStats]:
        """Return the steps with what was used since the last reading, by their durations.

        A GPU's counter is too slow for single steps, so their sum is right and their parts
        are shares of it. Unchanged where nothing is metered.
        """
        now_j, last_j = self._read(), self._last_j
        self._last_j = now_j
        total_s = sum(step.duration_s for step in steps)
        if now_j is None or last_j is None or total_s <= 0:
            return steps
        per_s = max(0.0, now_j - last_j) / total_s
        return [replace(step, energy_j=per_s * step.duration_s) for step in steps]

    def _read(self) -> float | None:
        return None if self._counter is None else self._counter.joules()


def gpu_counter(num_devices: int) -> NvmlCounter | None:
    """Return the counter of the first GPUs that this process sees; None where there is none."""
    from vllm.platforms import current_platform

    if not current_platform.is_cuda():
        return None
    from vllm.third_party import pynvml

    platform = cast("Any", current_platform)
    try:
        return NvmlCounter(
            pynvml, [platform.device_id_to_physical_device_id(n) for n in range(num_devices)]
        )
    except pynvml.NVMLError:
        return None
