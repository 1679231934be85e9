"""Stores to test with: a folder, and a bucket of an S3 server on the loopback."""

import contextlib
import itertools
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.storage import Store, open_store
from tests.faulty_proxy import FaultyProxy

S3_OPTIONS = {"key": "test-key-id", "secret": "test-secret-word", "region": "us-east-1"}

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of an S3 server that lives as long as the test session."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("s3_server.py")), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, server)
        yield port
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    give_up_s = time.monotonic() + 120
    while time.monotonic() < give_up_s and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail("the S3 server does not come up")


@pytest.fixture
def bucket(s3_port: int) -> str:
    """The name of a new empty bucket."""
    name = f"bucket-{next(_numbers)}"
    request = urllib.request.Request(f"http://127.0.0.1:{s3_port}/{name}", method="PUT")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
    return name


@pytest.fixture
def open_s3(s3_port: int, bucket: str) -> Callable[..., Store]:
    """Opens a store in the new bucket; `endpoint_url` may lead through a proxy."""

    def opened(
        prefix: str = "out", *, endpoint_url: str | None = None, deadline_s: float = 30.0
    ) -> Store:
        endpoint = endpoint_url or f"http://127.0.0.1:{s3_port}"
        return open_store(
            f"s3://{bucket}/{prefix}".rstrip("/"),
            options={"endpoint_url": endpoint, **S3_OPTIONS},
            deadline_s=deadline_s,
        )

    return opened


@pytest.fixture
def proxy(s3_port: int) -> Iterator[FaultyProxy]:
    """A proxy before the S3 server."""
    made = FaultyProxy(s3_port)
    yield made
    made.close()


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    """An empty store in a folder that does not exist yet."""
    return open_store(str(tmp_path / "out"), deadline_s=10.0)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store, once in a folder and once in a bucket."""
    if request.param == "local":
        return request.getfixturevalue("local_store")
    return request.getfixturevalue("open_s3")()
