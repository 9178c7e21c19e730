"""What is logged, and what is kept out of it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer

from fencepost.kafka.config import client_config
from fencepost.logs import CLIENT_LOGGER, Repeats, configure
from fencepost.settings import Settings


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Where the lines go. What `configure` changed for the process is put back afterwards."""
    root, client = logging.getLogger(), logging.getLogger(CLIENT_LOGGER)
    before = (root.handlers[:], root.level, client.filters[:], client.level)
    yield io.StringIO()
    root.handlers[:], client.filters[:] = before[0], before[2]
    root.setLevel(before[1])
    client.setLevel(before[3])
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@dataclass(frozen=True, slots=True)
class Order:
    task: str
    payload: Any


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_decision_is_one_json_object_a_line(out: io.StringIO) -> None:
    configure(Settings(), out)
    structlog.get_logger("fencepost.worker").bind(lane="w/0").info("assigned", partitions=[1, 2])
    (line,) = lines(out)
    at = line.pop("at")
    assert at.endswith("Z")
    assert len(at) == 24
    assert line == {
        "level": "info", "event": "assigned", "logger": "fencepost.worker", "lane": "w/0", "partitions": [1, 2],
    }  # fmt: skip


def test_the_level_holds_for_both_kinds_of_loggers(out: io.StringIO) -> None:
    configure(Settings(log_level="warning"), out)
    structlog.get_logger("a").info("no")
    logging.getLogger("b").info("no")
    structlog.get_logger("a").warning("yes")
    logging.getLogger("b").warning("yes, %s", "too")
    assert [line["event"] for line in lines(out)] == ["yes", "yes, too"]


def test_payloads_are_kept_out_from_info_on_and_shown_for_debugging(out: io.StringIO) -> None:
    configure(Settings(log_level="debug"), out)
    log = structlog.get_logger("a")
    log.info("x", task="t", payload={"n": 1}, result=2, inner={"checkpoint": 3, "epoch": 4})
    log.debug("x", payload={"n": 1})
    first, second = lines(out)
    assert first["task"] == "t"
    assert (first["payload"], first["result"]) == ("[removed]", "[removed]")
    assert first["inner"] == {"checkpoint": "[removed]", "epoch": 4}
    assert second["payload"] == {"n": 1}


def test_secrets_are_kept_out_at_every_level_however_deep(out: io.StringIO) -> None:
    configure(Settings(log_level="debug"), out)
    structlog.get_logger("a").debug("x", client={"sasl.password": "hunter2", "list": [{"Api-Key": "hunter2"}]})
    logging.getLogger("b").error("x", extra={"auth_token": "hunter2"})
    assert "hunter2" not in out.getvalue()
    assert out.getvalue().count("[removed]") == 3


def test_a_record_given_to_the_log_as_a_whole_does_not_show_its_payload(out: io.StringIO) -> None:
    configure(Settings(), out)
    structlog.get_logger("a").info("x", order=Order("t", "hunter2"))
    (line,) = lines(out)
    assert line["order"] == {"task": "t", "payload": "[removed]"}


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_shown_without_its_local_variables(out: io.StringIO, form: str) -> None:
    configure(Settings(log_format=form), out)

    def fail(payload: str) -> None:
        raise ValueError("no good")

    secret = "hunter" + "2"  # not as such in the source: a traceback quotes that
    try:
        fail(secret)
    except ValueError:
        structlog.get_logger("a").exception("failed")
    assert "ValueError: no good" in out.getvalue()
    assert "hunter2" not in out.getvalue()


def test_values_that_json_has_no_form_for_do_not_lose_the_line(out: io.StringIO) -> None:
    configure(Settings(), out)
    structlog.get_logger("a").info("x", odd={1}, broken="\udc80", raw=b"\xff", big=2**70)
    (line,) = lines(out)
    assert (line["odd"], line["broken"], line["raw"], line["big"]) == ("{1}", "\\udc80", "b'\\xff'", str(2**70))


def test_auto_is_text_on_a_terminal_and_json_elsewhere(out: io.StringIO) -> None:
    terminal = Terminal()
    configure(Settings(), terminal)
    structlog.get_logger("a").info("hello")
    assert not terminal.getvalue().startswith("{")
    assert "hello" in terminal.getvalue()
    configure(Settings(), out)
    structlog.get_logger("a").info("hello")
    assert lines(out)[0]["event"] == "hello"


def test_configured_twice_a_line_still_comes_once(out: io.StringIO) -> None:
    configure(Settings(), out)
    configure(Settings(), out)
    logging.getLogger("b").warning("once")
    assert len(lines(out)) == 1


class Seconds:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def shown(repeats: Repeats, facility: str, text: str) -> str | None:
    record = logging.LogRecord("x", logging.ERROR, "", 0, "%s [%s] %s", (facility, "client-1", text), None)
    return record.getMessage() if repeats.filter(record) else None


def test_connection_errors_come_once_every_few_seconds_with_a_count() -> None:
    clock = Seconds()
    repeats = Repeats(5.0, clock)
    assert shown(repeats, "FAIL", "Connection refused") == "FAIL [client-1] Connection refused"
    clock.now_s += 4.9
    assert shown(repeats, "FAIL", "Connection refused") is None
    assert shown(repeats, "ERROR", "2/2 brokers are down") is None
    clock.now_s += 0.2
    assert shown(repeats, "FAIL", "Connection refused") == "FAIL [client-1] Connection refused (and 2 like it)"
    clock.now_s += 5.1
    assert shown(repeats, "FAIL", "Connection refused") == "FAIL [client-1] Connection refused"


def test_being_turned_away_and_decisions_are_not_hidden_by_connection_errors() -> None:
    repeats = Repeats(5.0, Seconds())
    assert shown(repeats, "FAIL", "Connection refused") is not None
    assert shown(repeats, "FAIL", "SASL authentication error: bad password") is not None
    assert shown(repeats, "FAIL", "SASL authentication error: bad password") is None
    assert shown(repeats, "MAXPOLL", "exceeded") is not None
    assert shown(repeats, "MAXPOLL", "exceeded") is not None


def test_real_clients_without_a_broker_are_heard_once(out: io.StringIO, unused_port: int) -> None:
    configure(Settings(), out)
    failed: set[str] = set()

    def note(record: logging.LogRecord) -> bool:
        assert isinstance(record.args, tuple)
        failed.add(str(record.args[1]))
        return True

    logging.getLogger(CLIENT_LOGGER).filters.insert(0, note)
    settings = Settings(bootstrap=f"127.0.0.1:{unused_port}")
    clients = [Producer(client_config(settings, "test")) for _ in range(3)]
    while len(failed) < 3:  # a client hands its log over when it is polled
        for client in clients:
            client.poll(0.05)
    (line,) = lines(out)
    assert "Connection refused" in line["event"]
    assert (line["logger"], line["level"]) == (CLIENT_LOGGER, "error")
