"""Settings of this installation, read from the environment once; nothing below reads it.

PROMPTMILL_JOBS: folders of job files, separated by `:`; default: promptmill's own two.
PROMPTMILL_CACHE: folder of built models; default: $XDG_CACHE_HOME/promptmill.
PROMPTMILL_ENGINE: vllm, or echo to try a job without a model's answers; default: vllm.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from schemas.errors import SettingsError
from schemas.names import nearest

EngineKind = Literal["vllm", "echo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where job files and built models lie, and which engine answers."""

    job_folders: tuple[Path, ...]
    cache_dir: Path
    engine: EngineKind


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in these environment variables.

    Raises:
        SettingsError: a value is not one of those that are known.
    """
    jobs = environment.get("PROMPTMILL_JOBS", "")
    folders = tuple(Path(name).expanduser().absolute() for name in jobs.split(":") if name)
    cache = environment.get("PROMPTMILL_CACHE") or _default_cache(environment)
    return Settings(
        job_folders=folders or (Path(__file__).parent,),
        cache_dir=Path(cache).expanduser().absolute(),
        engine=engine_kind(environment.get("PROMPTMILL_ENGINE") or "vllm"),
    )


def engine_kind(name: str) -> EngineKind:
    """Return the engine of this name.

    Raises:
        SettingsError: there is no such engine.
    """
    for kind in get_args(EngineKind):
        if name == kind:
            return kind
    raise SettingsError(f"no engine `{name}`{nearest(name, get_args(EngineKind))}")


def _default_cache(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return f"{base}/promptmill"
