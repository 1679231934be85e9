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


def listening_addresses(pid: int) -> set[str]:
    """The addresses, as /proc/net/tcp writes them, on which a process listens."""
    links = [one.readlink() for one in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {str(link).removeprefix("socket:[").rstrip("]") for link in links}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == "0A" and others[5] in sockets:
                found.add(local.partition(":")[0])
    return found


def _state_and_group(path: Path) -> tuple[str, int]:
    try:
        state, _, group, *_ = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0
    return state, int(group)
