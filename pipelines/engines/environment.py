"""The environment of the engine's process: what must be so before its Python starts."""

import getpass
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.engines.settings import EngineSettings, has_inexact_int8
from pipelines.engines.vllm_int8 import REPLACED_KERNELS

_ALWAYS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_COLOR": "0",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Off the network; no user's text anywhere; and quiet: a start has ten warnings about what is
chosen here on purpose. What vLLM would only warn about and change is refused (vllm_requests)."""

_NEVER = frozenset(
    {
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_CPU_KVCACHE_SPACE",  # would win over kv_cache_memory_bytes
        "VLLM_LOGGING_CONFIG_PATH",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
    }
)
_NEVER_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
"""The engine reads a local folder: what opens storage is no business of its process."""


def child_environment(
    base: Mapping[str, str], settings: EngineSettings, preloads: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the environment of the engine's process.

    All cores compute, none is reserved for a scheduler process. Threads are not bound to
    cores: vLLM's own binding reaches only workers in processes of their own, and binding made no
    difference here. They wait for the next parallel region awake for 5 ms, vLLM's choice:
    beside other work Intel's 200 ms cost 13 %, and 0 ms 30 % (docs/decisions/0004).
    """
    environment = {
        name: value
        for name, value in base.items()
        if name not in _NEVER and not name.startswith(_NEVER_PREFIXES)
    }
    environment.update(_ALWAYS)
    # torch's own place, said here because the child's TMPDIR ends with it: compiled kernels
    # are worth keeping.
    kernels = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels))
    if settings.device.kind == "cuda":
        return environment
    environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, settings.device.cpu_ids))
    environment["OMP_NUM_THREADS"] = str(len(settings.device.cpu_ids))
    environment["KMP_BLOCKTIME"] = "5"
    if has_inexact_int8(settings.device):
        environment["VLLM_DISABLED_KERNELS"] = REPLACED_KERNELS
    if preloads:
        earlier = [base["LD_PRELOAD"]] if base.get("LD_PRELOAD") else []
        environment["LD_PRELOAD"] = os.pathsep.join([*map(str, preloads), *earlier])
    return environment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    name: str
    package: str
    patterns: tuple[str, ...]


_LIBRARIES = (
    _Library(
        name="libtcmalloc_minimal.so.4",
        package="apt-get install libtcmalloc-minimal4",
        patterns=("usr/lib/*/libtcmalloc_minimal.so.4", "usr/lib*/libtcmalloc_minimal.so.4"),
    ),
    _Library(name="libiomp5.so", package="pip install intel-openmp", patterns=()),
)


def find_preloads(
    root: Path = Path("/"), prefix: Path = Path(sys.prefix), machine: str = platform.machine()
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the libraries to preload on a CPU, and a line for each one that is missing.

    Measured together: 13 % more tokens per second (docs/decisions/0004).
    """
    found: list[Path] = []
    missing: list[str] = []
    for library in _LIBRARIES:
        if library.name.startswith("libiomp") and machine != "x86_64":
            continue
        places = [prefix / "lib" / library.name]
        places += [place for pattern in library.patterns for place in sorted(root.glob(pattern))]
        place = next((one for one in places if one.is_file()), None)
        if place is None:
            missing.append(
                f"{library.name} is not installed; the engine is slower without {library.package}"
            )
        else:
            found.append(place)
    return tuple(found), tuple(missing)
