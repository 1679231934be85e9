"""A real Dagster: webserver and daemon on a folder of their own, spoken to by GraphQL."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_READY_S = 120.0
_ASK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotInTimeError(Exception):
    """What was waited for did not come about."""


@dataclass(frozen=True)
class DagsterServer:
    """A webserver that answers on the loopback, and its daemon."""

    url: str
    logs: Path

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return what GraphQL answers under the query's one field."""
        request = urllib.request.Request(
            f"{self.url}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _ASK.open(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        (field,) = found["data"].values()
        return field

    def wait_for(
        self, query: str, path: str, wanted: set[str], *, within_s: float, **variables: Any
    ) -> str:
        """Ask until the value at `path` is one of those wanted, and return it."""
        give_up_s = time.monotonic() + within_s
        while time.monotonic() < give_up_s:
            found: Any = self.ask(query, **variables)
            for step in path.split("."):
                found = found[step]
            if found in wanted:
                return found
            time.sleep(1)
        tails = "\n".join(file.read_text()[-3000:] for file in sorted(self.logs.glob("*.log")))
        raise NotInTimeError(f"{path}: {found}, not {wanted}, after {within_s:.0f} s\n{tails}")


@contextlib.contextmanager
def dagster_server(home: Path, environment: Mapping[str, str]) -> Iterator[DagsterServer]:
    """Start webserver and daemon as `make dev` configures them, and end them afterwards."""
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    full = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        # On a machine with 30 busy processes the start of a run took more than the 60 s of the
        # default; Dagster then fails the run.
        "DAGSTER_GRPC_TIMEOUT_SECONDS": "300",
        **environment,
    }
    limit = [sys.executable, "-m", "dagster", "instance", "concurrency", "set", "gpu", "1"]
    subprocess.run(limit, cwd=ROOT, env=full, check=True, capture_output=True)
    port = _free_port()
    web = ["dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-w", "workspace.yaml"]
    with (
        _process([*web], full, home / "webserver.log"),
        _process(["dagster._daemon", "run", "-w", "workspace.yaml"], full, home / "daemon.log"),
    ):
        server = DagsterServer(f"http://127.0.0.1:{port}", home)
        _wait_until_ready(server)
        yield server


@contextlib.contextmanager
def _process(module: list[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and what it started: it leads a group of its own."""
    for kind, wait_s in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)


def _wait_until_ready(server: DagsterServer) -> None:
    give_up_s = time.monotonic() + _READY_S
    while time.monotonic() < give_up_s:
        with contextlib.suppress(OSError), _ASK.open(f"{server.url}/server_info", timeout=5):
            return
        time.sleep(0.2)
    raise NotInTimeError((server.logs / "webserver.log").read_text()[-3000:])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
