"""HTTP handlers: what is sent, how the answer counts, and where a worker does not let itself be sent."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.task import Cause, HttpHandler, Isolation, Outcome, Redirects
from fencepost.fencing import StaleEpoch, http
from fencepost.fencing.store import MemoryStore
from fencepost.worker.guard import linux
from fencepost.worker.guard.settings import CallSettings
from fencepost.worker.guard.start import GuardError
from fencepost.worker.orders import Refused, RunEnded
from tests.worker.bench import PATIENCE_S, Bench, order
from tests.worker.http_server import Answer, Request, Server, make_ca, make_certificate

BenchOf = Callable[..., Bench]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


def calling(bench_of: BenchOf, *hosts: str, **files: str) -> Bench:
    return bench_of(calls=CallSettings(hosts, **files))


def call(bench: Bench, url: str, task: str = "t", epoch: int = 1, **fields: Any) -> RunEnded:
    handler_fields = {name: fields.pop(name) for name in HttpHandler.__slots__ if name in fields}
    (end,) = bench.run(order(task, "", epoch=epoch, handler=HttpHandler(url, **handler_fields), **fields))
    assert isinstance(end, RunEnded), end
    return end


def held(server: Server) -> Callable[[Request], Answer]:
    """No answer before the gate is open."""

    def answer(_: Request) -> Answer:
        assert server.gate.wait(PATIENCE_S)
        return Answer()

    return answer


def run_of(url: str, task: str, **fields: Any) -> Any:
    return order(task, "", handler=HttpHandler(url), **fields)


@pytest.mark.parametrize("isolation", [Isolation.SHARED, Isolation.OWN])
def test_the_payload_is_sent_and_the_run_named(bench_of: BenchOf, server: Server, isolation: Isolation) -> None:
    server.answer = lambda request: Answer(201, b'{"order": 7}', {"Content-Type": "application/json; charset=utf-8"})
    bench = calling(bench_of, server.host)
    end = call(
        bench,
        server.url("/orders?x=1"),
        task="bestellung/ä",
        epoch=12,
        attempt=3,
        headers=(("X-Team", "shop"),),
        payload={"n": [1, "ä"]},
        scheduled_for_ms=1_774_000_000_123,
        idempotency_key="bestellung/ä/4",
        isolation=isolation,
    )
    assert end == RunEnded("bestellung/ä", 12, Outcome.SUCCEEDED, result={"status": 201, "body": {"order": 7}})
    (request,) = server.got
    assert (request.method, request.path, request.body) == ("POST", "/orders?x=1", '{"n":[1,"ä"]}'.encode())
    assert http.token_in(request.headers) == ("fencepost", "bestellung/ä", 12)
    assert {name: request.headers[name] for name in ("Idempotency-Key", "X-Team", "Content-Type")} == {
        "Idempotency-Key": "bestellung/%C3%A4/4",
        "X-Team": "shop",
        "Content-Type": "application/json",
    }
    assert request.headers["Fencepost-Attempt"] == "3"
    assert request.headers["Fencepost-Scheduled-For"] == "2026-03-20T09:46:40.123Z"
    bench.until(lambda: "→ 201" in bench.output("bestellung/ä", "log"))
    assert "x=1" not in bench.output("bestellung/ä")  # a query may hold secrets


def test_a_get_sends_no_body(bench_of: BenchOf, server: Server) -> None:
    end = call(calling(bench_of, server.host), server.url(), method="GET", sends_payload=False, payload={"n": 1})
    assert end.result == {"status": 200}
    assert (server.got[0].method, server.got[0].body) == ("GET", b"")


@pytest.mark.parametrize(
    ("status", "fields", "outcome", "final"),
    [
        (204, {}, Outcome.SUCCEEDED, False),
        (503, {}, Outcome.FAILED, False),
        (429, {}, Outcome.FAILED, False),
        (404, {}, Outcome.FAILED, True),
        (404, {"success": ((200, 299), (404, 404))}, Outcome.SUCCEEDED, False),
        (200, {"success": ((202, 202),)}, Outcome.FAILED, True),
        (404, {"retried": ((404, 404),)}, Outcome.FAILED, False),
        (503, {"retried": ()}, Outcome.FAILED, True),
        (302, {"redirects": Redirects.NONE, "success": ((302, 302),)}, Outcome.SUCCEEDED, False),
    ],
)
def test_the_status_says_how_the_run_ended_and_whether_it_is_tried_again(
    bench_of: BenchOf, server: Server, status: int, fields: dict[str, Any], outcome: Outcome, final: bool
) -> None:
    server.answer = lambda request: Answer(status, b"" if status == 204 else b"why so", {"Location": "/x"})
    end = call(calling(bench_of, server.host), server.url("/a"), **fields)
    assert (end.outcome, end.final) == (outcome, final)
    if outcome is Outcome.FAILED:
        assert end.error is not None
        assert end.error.startswith(f"POST {server.url('/a')}: {status} ")
        assert end.error.endswith(": why so")


@pytest.mark.parametrize(
    ("body", "kind", "result"),
    [
        (b"plain \xff", "text/plain", {"body": "plain \ufffd"}),
        (b"{broken", "application/json", {"body": "{broken"}),
        (b"9" * 30, "application/json", {"body": "9" * 30}),  # a number that does not fit
        (b"x" * 70_000, "text/plain", {"body": "x" * 8192, "cut": True}),
        (b"\x00" * 60_000, "text/plain", {"body": "\x00" * 8192, "cut": True}),  # six times as long as JSON
    ],
    ids=["text", "broken", "number", "long", "escaped"],
)
def test_what_is_kept_of_an_answer_is_bounded(
    bench_of: BenchOf, server: Server, body: bytes, kind: str, result: dict[str, Any]
) -> None:
    server.answer = lambda request: Answer(200, body, {"Content-Type": kind})
    assert call(calling(bench_of, server.host), server.url()).result == {"status": 200, **result}


def test_an_answer_without_end_is_left_at_the_limit(bench_of: BenchOf, server: Server) -> None:
    server.answer = lambda request: Answer(200, b"x" * 50_000_000)
    assert call(calling(bench_of, server.host), server.url()).result["cut"] is True
    assert server.hung_up.wait(PATIENCE_S)


@pytest.mark.parametrize("hosts", [(), ("other.example.com",), ("127.0.0.1",), ("127.0.0.1:1",), ("*:*",)])
def test_a_host_that_the_worker_does_not_name_is_not_called(
    bench_of: BenchOf, server: Server, hosts: tuple[str, ...]
) -> None:
    end = call(calling(bench_of, *hosts), server.url())
    assert end.outcome is Outcome.FAILED
    assert end.error is not None
    assert "handler.url: 127.0.0.1" in end.error
    assert server.got == []


def test_a_name_that_only_a_pattern_lets_through_does_not_lead_inside(bench_of: BenchOf, server: Server) -> None:
    inside = call(calling(bench_of, "*:*"), server.url(host="localhost"))
    assert inside.error is not None
    assert "no public address" in inside.error
    assert server.got == []
    assert call(calling(bench_of, f"localhost:{server.port}"), server.url(host="localhost")).result == {"status": 200}


def test_a_redirect_on_the_same_host_is_followed_as_every_client_does(bench_of: BenchOf, server: Server) -> None:
    moves = {"/303": 303, "/307": 307}
    server.answer = lambda r: Answer(moves.get(r.path, 200), b"", {"Location": "there"} if r.path in moves else {})
    bench = calling(bench_of, server.host)
    for epoch, path in enumerate(moves, start=1):
        end = call(bench, server.url(path), epoch=epoch, payload=[1], headers=(("Authorization", "s3cret"),))
        assert end.outcome is Outcome.SUCCEEDED
    assert [(r.method, r.path, r.body) for r in server.got] == [
        ("POST", "/303", b"[1]"), ("GET", "/there", b""), ("POST", "/307", b"[1]"), ("POST", "/there", b"[1]"),
    ]  # fmt: skip
    assert {r.headers["Authorization"] for r in server.got} == {"s3cret"}
    assert [http.token_in(r.headers).epoch for r in server.got] == [1, 1, 2, 2]


def test_a_redirect_elsewhere_is_refused_unless_it_is_allowed(bench_of: BenchOf, server: Server) -> None:
    with Server() as other:
        server.answer = lambda request: Answer(307, b"", {"Location": other.url("/x", "localhost")})
        bench = calling(bench_of, server.host, f"localhost:{other.port}")
        end = call(bench, server.url(), payload=[1])
        assert (end.outcome, end.final) == (Outcome.FAILED, True)
        assert end.error is not None
        assert "leads to another host" in end.error
        assert other.got == []
        elsewhere = Redirects.ALLOWED_HOSTS
        end = call(bench, server.url(), epoch=2, payload=[1], redirects=elsewhere, headers=(("Authorization", "s"),))
        assert end.outcome is Outcome.SUCCEEDED
        (request,) = other.got
        assert (request.body, "Authorization" in request.headers) == (b"[1]", False)  # that was for the first host
        strict = calling(bench_of, server.host)  # this worker's list has the first host only
        end = call(strict, server.url(), redirects=elsewhere)
        assert end.error is not None
        assert "is not on this worker's list of hosts" in end.error
        assert len(other.got) == 1


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/", "more than 5 redirects"),
        ("ftp://127.0.0.1/x", "only plain http and https"),
        ("http://user:secret@127.0.0.1/x", "only plain http and https"),
        ("http://127.0.0.1:1/x", "is not on this worker's list of hosts"),
        ("http://[::1/x", "which is no URL"),
    ],
)
def test_a_redirect_that_leads_nowhere_good_fails_the_run(
    bench_of: BenchOf, server: Server, location: str, why: str
) -> None:
    server.answer = lambda request: Answer(302, b"", {"Location": location})
    end = call(calling(bench_of, server.host), server.url(), redirects=Redirects.ALLOWED_HOSTS)
    assert (end.outcome, end.final) == (Outcome.FAILED, True)
    assert end.error is not None
    assert why in end.error
    assert "secret" not in end.error


def test_no_answer_in_time_is_a_failure_that_may_be_tried_again(bench_of: BenchOf, server: Server) -> None:
    server.answer = held(server)
    end = call(calling(bench_of, server.host), server.url(), timeout_s=0.2)
    assert (end.outcome, end.final) == (Outcome.FAILED, False)
    assert end.error == f"POST {server.url()}: no answer in 0.2 s"


def test_the_tasks_own_time_limit_ends_it_as_timed_out(bench_of: BenchOf, server: Server) -> None:
    server.answer = held(server)
    (end,) = calling(bench_of, server.host).run(run_of(server.url(), "t", timeout_s=0.2))
    assert isinstance(end, RunEnded)
    assert end.outcome is Outcome.TIMED_OUT


def test_nobody_there_is_a_failure_that_may_be_tried_again(bench_of: BenchOf) -> None:
    with Server() as server:
        url, host = server.url(), server.host
    end = call(calling(bench_of, host), url)
    assert (end.outcome, end.final) == (Outcome.FAILED, False)
    assert end.error is not None
    assert "ClientConnectorError" in end.error


def test_a_call_is_cancelled_while_others_go_on_in_the_same_process(bench_of: BenchOf, server: Server) -> None:
    server.answer = held(server)
    bench = calling(bench_of, server.host)
    bench.runners.launch([run_of(server.url(f"/{name}"), name) for name in ("a", "b", "c")])
    bench.until(lambda: len(server.got) == 3)
    bench.runners.stop("a", 1, "cancelled", None, 5.0)
    assert bench.ended("a").outcome is Outcome.CANCELLED
    bench.runners.stop("b", 1, "interrupted", Cause.HANDOVER, 5.0)
    assert bench.ended("b").cause is Cause.HANDOVER
    server.gate.set()
    assert bench.ended("c").outcome is Outcome.SUCCEEDED


def test_a_call_ends_with_its_lease(bench_of: BenchOf, server: Server) -> None:
    server.answer = held(server)
    bench = calling(bench_of, server.host)
    (end,) = bench.run(run_of(server.url(), "t", lease_ttl_s=2.0))  # and nothing renews it
    assert isinstance(end, RunEnded)
    assert (end.outcome, end.cause) == (Outcome.INTERRUPTED, Cause.FENCED), end


def test_a_lease_that_ends_while_the_process_of_its_run_starts_is_no_failure(bench_of: BenchOf, server: Server) -> None:
    """The guard asks the process to stop before that can hear it: it was ended by the signal, and the run failed."""
    server.answer = held(server)
    bench = calling(bench_of, server.host)
    for number in range(10):
        bench.runners.lease(0, "n1", linux.boot_s())
        life_s = 0.4 + number * 0.03  # the guard asks 0.04 to 0.3 s from now on, and ends the process soon after
        (end,) = bench.run(run_of(server.url(), f"t/{number}", lease_ttl_s=0.5 + life_s))
        fenced = isinstance(end, RunEnded) and (end.outcome, end.cause) == (Outcome.INTERRUPTED, Cause.FENCED)
        assert fenced or isinstance(end, Refused), end


def test_a_server_that_keeps_epochs_refuses_a_stale_one(bench_of: BenchOf, server: Server) -> None:
    store, orders = MemoryStore(), []

    def admit(request: Request) -> Answer:
        try:
            with http.admit(request.headers, store) as token:
                orders.append(token.epoch)
        except (http.BadToken, StaleEpoch) as refused:
            return Answer(http.status_of(refused), str(refused).encode())
        return Answer()

    server.answer = admit
    newer, frozen = calling(bench_of, server.host), calling(bench_of, server.host)
    assert call(newer, server.url(), epoch=2).outcome is Outcome.SUCCEEDED
    end = call(frozen, server.url(), epoch=1)  # thought dead, and goes on
    assert (end.outcome, end.final) == (Outcome.FAILED, True)
    assert end.error is not None
    assert "409 Conflict: t: epoch 1 is stale, epoch 2 was here already" in end.error
    assert orders == [2]


def test_tls_trusts_the_given_authority_only_and_shows_a_certificate(bench_of: BenchOf, tmp_path: Path) -> None:
    ca = make_ca(tmp_path)
    certificate, key = make_certificate(tmp_path, "server")
    mine, my_key = make_certificate(tmp_path, "worker")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    tls.load_verify_locations(ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    with Server(tls=tls) as server:
        stranger = call(calling(bench_of, server.host), server.url())
        assert stranger.error is not None
        assert "CERTIFICATE_VERIFY_FAILED" in stranger.error
        nobody = call(calling(bench_of, server.host, ca_file=str(ca)), server.url())
        assert nobody.outcome is Outcome.FAILED  # the server wants to see a certificate
        assert server.got == []
        known = calling(bench_of, server.host, ca_file=str(ca), cert_file=str(mine), key_file=str(my_key))
        assert call(known, server.url()).result == {"status": 200}


def test_files_for_tls_that_cannot_be_used_are_said_at_the_start(bench_of: BenchOf, tmp_path: Path) -> None:
    (tmp_path / "not.pem").write_text("no certificate")
    with pytest.raises(GuardError, match=r"call\.ca_file: .*not\.pem"):
        calling(bench_of, "h", ca_file=str(tmp_path / "not.pem"))
    with pytest.raises(GuardError, match=r"call\.cert_file, call\.key_file: /nowhere"):
        calling(bench_of, "h", cert_file="/nowhere")
    with pytest.raises(GuardError, match=r"call\.key_file: given without"):
        calling(bench_of, "h", key_file="/nowhere")
