"""A proxy between a client and an S3 server that does to one request what networks do.

Faults are queued with `next_request` and used up one by one, by requests of the given method.
"""

import http.client
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal[
    "drop before", "drop after", "cut body", "slow down", "conflict", "error", "expired"
]

_ANSWERS: dict[str, tuple[int, str]] = {
    "slow down": (503, "SlowDown"),
    "conflict": (409, "ConditionalRequestConflict"),
    "error": (500, "InternalError"),
    "expired": (403, "ExpiredToken"),
    "denied": (403, "AccessDenied"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    method: str
    fault: Fault


class FaultyProxy:
    """Forwards to 127.0.0.1:`port`; `uri` is where a client connects."""

    def __init__(self, port: int):
        self.requests: list[tuple[str, str]] = []
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self, "port": port})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def next_request(self, method: str, fault: Fault, num_times: int = 1) -> None:
        """The next `num_times` requests with `method` meet `fault`."""
        with self._lock:
            self._planned += [_Planned(method=method, fault=fault)] * num_times

    def num_requests(self, method: str) -> int:
        """Return how many requests with `method` have come."""
        with self._lock:
            return sum(seen == method for seen, _ in self.requests)

    def close(self) -> None:
        """Stop to listen."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, method: str, path: str) -> Fault | None:
        """Note a request and return the fault that it meets."""
        with self._lock:
            self.requests.append((method, path))
            for at, planned in enumerate(self._planned):
                if planned.method == method:
                    return self._planned.pop(at).fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy
    port: int

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.take(self.command, self.path)
        if fault == "drop before":
            self._drop()
        elif fault in _ANSWERS:
            status, code = _ANSWERS[fault]
            text = f"<Error><Code>{code}</Code><Message>{code} on purpose</Message></Error>"
            self._answer(status, {"Content-Type": "application/xml"}, text.encode())
        else:
            self._answer_as_the_server_does(body, fault)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward

    def _answer_as_the_server_does(self, body: bytes, fault: Fault | None) -> None:
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name: text for name, text in self.headers.items() if name != "Expect"}
        server.request(self.command, self.path, body=body, headers=headers)
        answer = server.getresponse()
        content = answer.read()
        server.close()
        if fault == "drop after":
            self._drop()
            return
        kept = {
            name: text
            for name, text in answer.getheaders()
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}
        }
        size = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        kept["Content-Length"] = str(size or 0)
        self._answer(answer.status, kept, content[: len(content) // 2] if fault else content)
        if fault == "cut body":
            self._drop()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
            self.wfile.flush()

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""
