"""How an engine is started on this machine: what is known of it, put to `engine_settings`."""

import os

import psutil

from pipelines.devices import Device
from pipelines.engines.basis import Evidence
from pipelines.engines.choosing import engine_settings
from pipelines.engines.settings import EngineDevice, EngineSettings
from pipelines.tools import EngineNeed


def engine_device(device: Device) -> EngineDevice:
    """Return what an engine may use of this machine, as it is now."""
    is_cpu = device.kind == "cpu"
    return EngineDevice(
        kind=device.kind,
        name=device.name,
        cpu_ids=tuple(sorted(os.sched_getaffinity(0)))[: device.num_cores],
        free_memory_bytes=psutil.virtual_memory().available if is_cpu else device.memory_bytes,
        num_devices=device.num_devices,
        flags=device.flags,
        compute_capability=device.compute_capability,
    )


def settings_for(need: EngineNeed, device: EngineDevice) -> EngineSettings:
    """Return how to start vLLM for this need.

    Raises:
        SettingsError: its longest request does not fit into memory.
    """
    return engine_settings(
        device,
        need.checkpoint,
        max_model_len=need.context_length,
        overrides=need.job.engine,
        evidence=Evidence(workload=need.workload, forecast_s=need.forecast_s),
    )
