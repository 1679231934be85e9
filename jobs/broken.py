"""A job file that cannot be loaded: shown where its job would be, while the others go on."""

import re
from typing import Any

import dagster as dg

from schemas.ids import sha256_hex

GROUP = "broken_job_files"


def broken_asset(name: str, error: str) -> dg.AssetsDefinition:
    """Return an asset that stands for this job file: it says the error, and fails with it."""

    @dg.asset(
        key=[GROUP, _dagster_name(name)],
        group_name=GROUP,
        description=f"This job file is not loaded:\n\n{error}",
    )
    def broken() -> dg.MaterializeResult[Any]:
        raise dg.Failure(description=error, allow_retries=False)

    return broken


def _dagster_name(name: str) -> str:
    """Return `name` in the letters that Dagster takes; different names stay different."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain == name else f"{plain}_{sha256_hex(name.encode())[:8]}"
