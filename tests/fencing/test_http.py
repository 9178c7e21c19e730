"""The epoch in the headers of a request: sent by the client, checked by the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import RunContext
from fencepost.fencing import EpochStore, MemoryStore, StaleEpoch, Token, http


def test_headers_name_the_run_and_its_idempotency_key() -> None:
    assert http.headers(RunContext("invoice/7", 3, idempotency_key="k1")) == {
        "Fencepost-Namespace": "fencepost",
        "Fencepost-Task": "invoice/7",
        "Fencepost-Epoch": "3",
        "Idempotency-Key": "k1",
    }
    assert "Idempotency-Key" not in http.headers(Token("n", "t", 1))


ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60).filter(
    lambda text: len(text.encode()) <= 255
)


@given(st.text("abcé.-_", min_size=1), ids, st.integers(1, 2**63 - 1))
def test_any_token_goes_through_headers_unharmed(namespace: str, task: str, epoch: int) -> None:
    token = Token(namespace, task, epoch)
    sent = http.headers(token)
    assert all(value.isascii() and value.isprintable() and value == value.strip() for value in sent.values())
    assert http.token_in({name.upper(): value for name, value in sent.items()}) == token


@pytest.mark.parametrize(
    ("change", "header", "status"),
    [
        ({"Fencepost-Epoch": None}, "Fencepost-Epoch", 428),
        ({"Fencepost-Task": None}, "Fencepost-Task", 428),
        ({"Fencepost-Epoch": "0"}, "Fencepost-Epoch", 400),
        ({"Fencepost-Epoch": "-1"}, "Fencepost-Epoch", 400),
        ({"Fencepost-Epoch": "1.0"}, "Fencepost-Epoch", 400),
        ({"Fencepost-Epoch": "٣"}, "Fencepost-Epoch", 400),
        ({"Fencepost-Epoch": "9" * 400}, "Fencepost-Epoch", 400),
        ({"Fencepost-Task": "%00"}, "Fencepost-Task", 400),
        ({"Fencepost-Task": "%ff"}, "Fencepost-Task", 400),
    ],
    ids=str,
)
def test_a_bad_token_is_named_with_what_to_answer(change: Mapping[str, str | None], header: str, status: int) -> None:
    received = {**http.headers(Token("n", "t", 1)), **change}
    with pytest.raises(http.BadToken) as refused:
        http.token_in({name: value for name, value in received.items() if value is not None})
    assert (refused.value.header, http.status_of(refused.value)) == (header, status)


def test_a_stale_epoch_is_not_let_in() -> None:
    store = MemoryStore()
    for epoch in (2, 2, 5):
        with http.admit(http.headers(Token("n", "t", epoch)), store) as token:
            assert token.epoch == epoch
    with pytest.raises(StaleEpoch) as refused, http.admit(http.headers(Token("n", "t", 4)), store):
        pytest.fail("inside")
    assert (refused.value.newest, http.status_of(refused.value)) == (5, 409)
    with http.admit(http.headers(Token("other", "t", 1)), store):
        pass


def test_a_deed_that_fails_keeps_its_epoch() -> None:
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError), store.admit(Token("n", "t", 2)):
        raise ZeroDivisionError
    with pytest.raises(StaleEpoch), store.admit(Token("n", "t", 1)):
        pytest.fail("inside")


def test_a_newer_run_waits_until_the_older_ones_deed_is_done() -> None:
    store, inside, done = MemoryStore(), threading.Event(), []

    def older() -> None:
        with store.admit(Token("n", "t", 1)):
            inside.set()
            go_on.wait(30)
            done.append("older")

    go_on = threading.Event()
    thread = threading.Thread(target=older)
    thread.start()
    assert inside.wait(30)
    with store.admit(Token("n", "another", 1)):
        go_on.set()  # another task was not held up
    with store.admit(Token("n", "t", 2)):
        done.append("newer")
    thread.join(30)
    assert done == ["older", "newer"]


@contextmanager
def serving(store: EpochStore, orders: list[bytes]) -> Iterator[str]:
    """A server as plain as can be, which takes orders."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                with http.admit(_plain(self.headers), store):
                    orders.append(body)
            except (http.BadToken, StaleEpoch) as refused:
                self.send_error(http.status_of(refused), explain=str(refused))  # a task ID need not be ASCII
                return
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(30)


def _plain(headers: Message) -> dict[str, str]:
    return dict(headers.items())


def test_over_the_wire_a_stale_runs_request_gets_a_conflict_and_changes_nothing() -> None:
    orders: list[bytes] = []

    def post(url: str, body: bytes, headers: dict[str, str]) -> int:
        try:
            with urlopen(Request(url, body, headers), timeout=30) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    with serving(MemoryStore(), orders) as url:
        assert post(url, b"one", http.headers(Token("n", "задача", 1))) == 204
        assert post(url, b"three", http.headers(Token("n", "задача", 3))) == 204
        assert post(url, b"two", http.headers(Token("n", "задача", 2))) == 409
        assert post(url, b"nobody's", {}) == 428
    assert orders == [b"one", b"three"]
