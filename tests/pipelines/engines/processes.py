"""What tests ask about processes."""

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process that is not a zombie."""
    return _state_and_group(Path(f"/proc/{pid}/stat"))[0] != "Z"


def is_gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_group_empty(pid: int) -> bool:
    """Whether nothing runs any more in the group that `pid` led."""
    everything = map(_state_and_group, Path("/proc").glob("[0-9]*/stat"))
    return all(state == "Z" or group != pid for state, group in everything)


def _state_and_group(path: Path) -> tuple[str, int]:
    try:
        state, _, group, *_ = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0
    return state, int(group)
