"""What a worker serves over HTTP: /livez, /readyz and /metrics, for probes and Prometheus.

Threads of its own, a few at a time, so that no caller holds up the worker or another caller for long. A request has
one limit in bytes and one in time, both for all of it: a client that sends a byte now and then is cut off too.
"""

from __future__ import annotations

import io
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from fencepost.codec import dumps
from fencepost.settings import Settings, SettingsError

Probe = Callable[[], tuple[bool, Mapping[str, Any]]]
Exposition = Callable[[], tuple[bytes, str]]

REQUEST_LIMIT_BYTES = 16 * 1024
REQUEST_LIMIT_S = 5.0
CONNECTIONS = 16
POLL_S = 0.2


class HttpServer:
    """Serves what three callables say. `live` and `ready` return (ok, reasons); `metrics` a body and its content type.

    They are called in the server's threads and must not block. One that raises counts as not ok. With `http_port`
    None in the settings nothing is served and `start` does nothing.
    """

    def __init__(
        self,
        settings: Settings,
        live: Probe,
        ready: Probe,
        metrics: Exposition,
        log: Any,
        request_limit_s: float = REQUEST_LIMIT_S,
    ) -> None:
        self._host, self._wanted_port = settings.http_host, settings.http_port
        self._pages: dict[str, Callable[[], _Page]] = {
            "/livez": lambda: _probe(live),
            "/readyz": lambda: _probe(ready),
            "/metrics": lambda: _Page(HTTPStatus.OK, *metrics()),
        }
        self._log = log
        self._request_limit_s = request_limit_s
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int | None:
        """The port in use; None before `start` and after `stop`."""
        return None if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Raises SettingsError where the address cannot be used."""
        if self._wanted_port is None:
            return
        where = f"worker.http_host {self._host}, worker.http_port {self._wanted_port}"
        try:
            family, _, _, _, address = socket.getaddrinfo(
                self._host, self._wanted_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._server = _Server(family, address, self._pages, self._log, self._request_limit_s)
        except OSError as error:
            raise SettingsError(
                f"cannot serve HTTP at {where}: {error.strerror or error}; allowed: an address of this machine and "
                "a free port (0: any)"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="fencepost-http", daemon=True
        )
        self._thread.start()
        self._log.info("serving HTTP", host=self._host, port=self.port)

    def stop(self) -> None:
        """Close the port. Requests being answered end by their own limit. Safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        if self._thread is not None:
            self._thread.join()


class _Page:
    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.status, self.body, self.content_type = status, body, content_type


def _json(status: HTTPStatus, value: Mapping[str, Any]) -> _Page:
    return _Page(status, dumps(value) + b"\n", "application/json")


def _probe(probe: Probe) -> _Page:
    ok, reasons = probe()
    return _json(HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, {"ok": ok, "reasons": dict(reasons)})


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    # Not http.server.HTTPServer: it looks its own name up when it starts, which may take as long as DNS likes.
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(
        self, family: int, address: Any, pages: dict[str, Callable[[], _Page]], log: Any, request_limit_s: float
    ) -> None:
        self.address_family = family
        self.pages, self.log, self.request_limit_s = pages, log, request_limit_s
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # too many at once: the caller asks again
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Mostly callers that went away; nothing a worker has to act on.
        self.log.debug("an HTTP request failed", peer=str(client_address[0]), exc_info=True)


class _LimitedInput(io.RawIOBase):
    """A socket's input that raises OSError beyond so many bytes, and TimeoutError at the deadline."""

    def __init__(self, connection: socket.socket, limit_bytes: int, until_s: float) -> None:
        self._connection, self._left, self._until_s = connection, limit_bytes, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining_s = self._until_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("the request took too long")
        if self._left <= 0:
            raise OSError(f"the request is larger than {REQUEST_LIMIT_BYTES} bytes")
        self._connection.settimeout(remaining_s)
        taken = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= taken
        return taken


class _Handler(BaseHTTPRequestHandler):
    """One request, then the connection is closed (HTTP/1.0)."""

    server: _Server
    server_version = "fencepost"
    sys_version = ""
    error_content_type = "text/plain"
    error_message_format = "%(code)d %(message)s\n"

    def setup(self) -> None:
        super().setup()
        self._until_s = time.monotonic() + self.server.request_limit_s
        limited = _LimitedInput(self.connection, REQUEST_LIMIT_BYTES, self._until_s)
        self.rfile = io.BufferedReader(limited)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        page = self._page(self.path.partition("?")[0])
        # sendall counts its timeout over all it sends, so a caller that does not read is cut off as well.
        self.connection.settimeout(max(0.1, self._until_s - time.monotonic()))
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def _page(self, path: str) -> _Page:
        make = self.server.pages.get(path)
        if make is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": "no such page", "allowed": sorted(self.server.pages)})
        try:
            return make()
        except Exception as error:  # whatever it is, the probe must get an answer: not ok
            self.server.log.error("a page could not be made", page=path, exc_info=True)
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ok": False, "reasons": {"error": type(error).__name__}})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a probe every few seconds is not worth a line."""
