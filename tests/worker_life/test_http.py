"""Probes and metrics over real HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import structlog

from fencepost.settings import Settings, SettingsError
from fencepost.worker import http as served
from fencepost.worker.http import HttpServer

Answer = tuple[bool, Mapping[str, Any]]
Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers on free ports; stops them when the test ends."""
    with ExitStack() as stack:

        def start(
            live: Callable[[], Answer] = lambda: (True, {}),
            ready: Callable[[], Answer] = lambda: (True, {}),
            metrics: Callable[[], tuple[bytes, str]] = lambda: (b"m 1\n", "text/plain"),
            limit_s: float = 5.0,
            **settings: Any,
        ) -> HttpServer:
            made = Settings(**{"http_port": 0, **settings})
            server = HttpServer(made, live, ready, metrics, structlog.get_logger("test"), limit_s)
            stack.callback(server.stop)
            server.start()
            return server

        yield start


def ask(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port or 0, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port or 0), timeout=10)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes; a connection it resets has nothing more either."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        return found
    return found


def test_a_worker_that_is_well_answers_200_with_its_reasons(serve: Serve) -> None:
    server = serve(live=lambda: (True, {"lanes": 1}), ready=lambda: (True, {"partitions": [0, 1]}))
    status, kind, body = ask(server, "/livez")
    assert (status, kind, json.loads(body)) == (200, "application/json", {"ok": True, "reasons": {"lanes": 1}})
    status, kind, body = ask(server, "/readyz?verbose=1")
    assert (status, json.loads(body)["reasons"]) == (200, {"partitions": [0, 1]})


def test_a_worker_that_is_not_ready_answers_503_and_says_why(serve: Serve) -> None:
    server = serve(ready=lambda: (False, {"kafka": "does not answer"}))
    status, _, body = ask(server, "/readyz")
    assert (status, json.loads(body)) == (503, {"ok": False, "reasons": {"kafka": "does not answer"}})
    assert ask(server, "/livez")[0] == 200


def test_metrics_are_passed_on_with_their_content_type(serve: Serve) -> None:
    server = serve(metrics=lambda: (b"fencepost_x 1\n", "text/plain; version=0.0.4"))
    assert ask(server, "/metrics") == (200, "text/plain; version=0.0.4", b"fencepost_x 1\n")


def test_head_has_no_body(serve: Serve) -> None:
    assert ask(serve(), "/livez", "HEAD")[::2] == (200, b"")


def test_an_unknown_page_is_told_what_there_is(serve: Serve) -> None:
    status, _, body = ask(serve(), "/admin")
    assert status == 404
    assert json.loads(body)["allowed"] == ["/livez", "/metrics", "/readyz"]


def test_other_methods_are_refused(serve: Serve) -> None:
    assert ask(serve(), "/livez", "DELETE")[0] == 501


def test_a_probe_that_raises_counts_as_not_ok_and_shows_no_details(serve: Serve) -> None:
    def broken() -> Answer:
        raise RuntimeError("password=hunter2")

    status, _, body = ask(serve(live=broken), "/livez")
    assert status == 503
    assert b"RuntimeError" in body
    assert b"hunter2" not in body


def test_a_request_that_dribbles_in_is_cut_off_as_a_whole(serve: Serve) -> None:
    """Each byte comes well within the limit; only all of it together takes too long."""
    server = serve(limit_s=1.0)
    ended = threading.Event()
    with connect(server) as connection:

        def dribble() -> None:
            while not ended.wait(0.1):
                try:
                    connection.sendall(b"G")
                except OSError:
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            assert read_all(connection) == b""  # within the socket's own 10 s, or this raises
        finally:
            ended.set()
            thread.join()


def test_a_request_that_is_too_large_is_not_read_to_its_end(serve: Serve) -> None:
    server = serve()
    with connect(server) as connection:
        head = b"GET /livez HTTP/1.0\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 900) for n in range(40))
        try:
            connection.sendall(head)
            answer = read_all(connection)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
    assert answer == b""
    assert ask(server, "/livez")[0] == 200


def test_callers_that_say_nothing_do_not_keep_others_out_beyond_the_limit(serve: Serve) -> None:
    server = serve(limit_s=1.0)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(served.CONNECTIONS + 4)]
        for connection in silent:
            read_all(connection)  # each is closed by the server, at once or when its time is up
        assert ask(server, "/livez")[0] == 200


def test_a_slow_probe_holds_up_no_other_page(serve: Serve) -> None:
    go_on = threading.Event()

    def slow() -> Answer:
        go_on.wait(30)
        return True, {}

    server = serve(ready=slow)
    with connect(server) as waiting:
        waiting.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        try:
            assert ask(server, "/livez")[0] == 200
        finally:
            go_on.set()
        assert read_all(waiting).startswith(b"HTTP/1.0 200")


def test_without_a_port_nothing_is_served(serve: Serve) -> None:
    server = serve(http_port=None)
    assert server.port is None
    server.stop()


def test_a_port_in_use_is_named_with_its_setting(serve: Serve) -> None:
    taken = serve().port
    with pytest.raises(SettingsError, match=rf"worker\.http_port {taken}: Address already in use; allowed"):
        serve(http_port=taken)


def test_a_stopped_server_has_given_its_port_back(serve: Serve) -> None:
    server = serve()
    port = server.port
    server.stop()
    server.stop()
    assert server.port is None
    assert serve(http_port=port).port == port
