"""A server on loopback for the tests of HTTP handlers: it does what a path says, and remembers what it got."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Server:
    """`answer` decides what to say; it may take its time: `close` lets everybody go who waits at `gate`."""

    answer: Callable[[Request], Answer] = lambda request: Answer()
    tls: ssl.SSLContext | None = None
    got: list[Request] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)  # a caller left before it had its answer
    _server: Any = None

    def __enter__(self) -> Server:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers), body)
                outer.got.append(request)
                answer = outer.answer(request)
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer.body)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(answer.body)
                except OSError:
                    outer.hung_up.set()

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _any

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # callers that hang up, and handshakes that fail, are what is tested

        self._server = Quiet(("127.0.0.1", 0), Handler)
        if self.tls is not None:
            # Not while it is accepted: a handshake that hangs would hold up all others.
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}{path}"


def make_ca(folder: Path) -> Path:
    """An authority of the test's own: ca.pem, ca.key."""
    _openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=the test's own", "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    return folder / "ca.pem"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate by that authority for localhost and 127.0.0.1, and its key."""
    _openssl(folder, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", "2", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    return folder / f"{name}.pem", folder / f"{name}.key"


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
