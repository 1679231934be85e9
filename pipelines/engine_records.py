"""Engine records on the local disk: read before an engine starts, written after.

They lie in the cache folder, one JSON file per weights, device and engine. What is there only
makes later runs quicker: a file that is damaged or of another version counts as none.
"""

import contextlib
import math
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from schemas.engine_records import EngineKey, EngineRecord, EngineStart
from schemas.ids import content_id
from schemas.tunings import Tuning
from schemas.workloads import Workload

_FOLDER = "engines"
_SCHEME = "en1"
_MAX_STARTS = 32
_MAX_RATIO = 2.0
"""A tuning says nothing of a job whose share of output tokens differs by more than this factor."""
_RECORD = TypeAdapter(EngineRecord)


def read_record(cache_dir: Path, key: EngineKey) -> EngineRecord:
    """Return what is known of this engine; an empty record where that is nothing."""
    try:
        found = _RECORD.validate_json(_path(cache_dir, key).read_bytes())
    except (FileNotFoundError, ValidationError):
        return EngineRecord(key=key)
    return found if found.key == key else EngineRecord(key=key)


def add_start(cache_dir: Path, key: EngineKey, start: EngineStart) -> None:
    """Add a start to the record; the oldest beyond 32 are forgotten."""
    record = read_record(cache_dir, key)
    _write(cache_dir, replace(record, starts=(*record.starts, start)[-_MAX_STARTS:]))


def add_tuning(cache_dir: Path, key: EngineKey, tuning: Tuning) -> Path:
    """Put a tuning in the place of the same job's last one; return the record's file."""
    record = read_record(cache_dir, key)
    others = (one for one in record.tunings if one.job_name != tuning.job_name)
    return _write(cache_dir, replace(record, tunings=(*others, tuning)))


def tuning_for(record: EngineRecord, job_name: str, workload: Workload | None) -> Tuning | None:
    """Return the tuning that fits: the job's own, else the one of the most similar lengths.

    Similar: the share of output tokens, which balance depends on, differs by less than a
    factor of 2. Without a workload there is nothing to compare, and only the job's own fits.
    """
    own = next((one for one in record.tunings if one.job_name == job_name), None)
    if own is not None or workload is None or not record.tunings:
        return own
    total = workload.mean_prompt_tokens + workload.mean_output_tokens
    wanted = workload.mean_output_tokens / total

    def distance(tuning: Tuning) -> float:
        return abs(math.log(tuning.output_fraction / wanted))

    nearest = min(record.tunings, key=distance)
    return nearest if distance(nearest) < math.log(_MAX_RATIO) else None


def _path(cache_dir: Path, key: EngineKey) -> Path:
    return cache_dir / _FOLDER / f"{content_id(_SCHEME, asdict(key))}.json"


def _write(cache_dir: Path, record: EngineRecord) -> Path:
    """Write the record in one move: a reader sees the old one or the new one."""
    path = _path(cache_dir, record.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, suffix=".draft")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_RECORD.dump_json(record, indent=1))
        Path(draft).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()
        raise
    return path
