"""What runs print, on its way to the logs topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.testing import LogCapture

from fencepost.core.ids import partition_of
from fencepost.kafka.admin import init
from fencepost.kafka.errors import DeliveryUnknown
from fencepost.kafka.producer import Outgoing, Producer, Sent
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.settings import PROFILES, Settings
from fencepost.wire.log import LogPart, decode_log
from fencepost.worker.orders import RunOutput
from fencepost.worker.printer import OutputShipper

if TYPE_CHECKING:
    from fencepost.broker import Cluster

PARTITIONS = 4


class Gate:
    """Stands where Kafka stands: takes nothing while shut, and can be told to fail. For what a broker cannot time."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        self.fail_next = 0
        self.sent: list[Outgoing] = []

    def __call__(self, _settings: Settings, _timeout_s: float) -> Producer:
        return self  # type: ignore[return-value]

    def send_all(self, records: Iterable[Outgoing]) -> list[Sent]:
        batch = list(records)
        self.reached.set()
        assert self.open.wait(30)
        if self.fail_next:
            self.fail_next -= 1
            raise DeliveryUnknown("no answer")
        self.sent += batch
        return []

    def close(self) -> None:
        return None

    @property
    def parts(self) -> list[LogPart]:
        return [decode_log(record.value or b"") for record in self.sent]


def logger(capture: LogCapture) -> Any:
    return structlog.wrap_logger(None, processors=[capture])


def shipper(gate: Gate, capture: LogCapture | None = None, **limits: Any) -> OutputShipper:
    settings = limits.pop("settings", Settings())
    log = logger(capture or LogCapture())
    return OutputShipper(settings, "x.logs", PARTITIONS, "w", log, make_producer=gate, **limits)


def texts(parts: Iterable[LogPart], task: str = "t", epoch: int = 1) -> list[str]:
    return [text for part in parts if (part.task, part.epoch) == (task, epoch) for _, text in part.lines]


@pytest.fixture
def on_kafka(kafka: Cluster, namespace: str) -> Settings:
    settings = Settings(bootstrap=kafka.bootstrap, namespace=namespace, profile="quick", **PROFILES["quick"])
    init(settings, partitions=PARTITIONS)
    return settings


@pytest.mark.kafka
def test_lines_lie_in_the_topic_by_task_in_order_where_their_owner_looks(on_kafka: Settings) -> None:
    topic = Topics(on_kafka.namespace).logs
    ship = OutputShipper(on_kafka, topic, PARTITIONS, "w-1", structlog.get_logger("test"))

    def lane(number: int) -> None:
        for line in range(200):
            ship.take(RunOutput(f"task-{line % 5}", number, "out", f"{line}\n"))

    threads = [threading.Thread(target=lane, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ship.take(RunOutput("task-0", 1, "err", "two\nlines"))
    ship.close(30)
    assert ship.dropped == 0
    found: list[tuple[Record, LogPart]] = [
        (record, decode_log(record.value or b"")) for record in scan(on_kafka, topic)
    ]
    for record, part in found:
        assert record.key == part.task.encode()
        assert record.partition == partition_of(record.key, PARTITIONS)
        assert part.worker == "w-1"
        assert dict(record.headers)["content-type"] == b"application/json"
    for task in range(5):
        for epoch in (1, 2):
            parts = [part for _, part in found if (part.task, part.epoch) == (f"task-{task}", epoch)]
            assert [part.part for part in parts] == list(range(len(parts)))
            wanted = [str(line) for line in range(task, 200, 5)]
            assert texts(parts, f"task-{task}", epoch) == wanted + (["two", "lines"] if (task, epoch) == (0, 1) else [])
    last = [part for _, part in found if (part.task, part.epoch) == ("task-0", 1)][-1]
    assert last.lines[-2:] == (("err", "two"), ("err", "lines"))


@pytest.mark.kafka
def test_the_largest_records_a_run_can_make_are_taken_by_the_topic(on_kafka: Settings) -> None:
    """What JSON makes six bytes of, in one line of nearly a mebibyte and in many."""
    topic = Topics(on_kafka.namespace).logs
    capture = LogCapture()
    ship = OutputShipper(on_kafka, topic, PARTITIONS, "w-1", logger(capture))
    line = "\x00" * 1_000_000
    ship.take(RunOutput("one", 1, "out", line))
    ship.take(RunOutput("many", 1, "out", "\n".join(["\x01" * 1000] * 1000)))
    ship.close(60)
    parts = [decode_log(record.value or b"") for record in scan(on_kafka, topic)]
    assert ship.dropped == 0, capture.entries
    assert "".join(texts(parts, "one")) == line
    assert texts(parts, "many") == ["\x01" * 1000] * 1000


def test_lines_that_come_together_go_in_one_record_with_both_streams() -> None:
    gate = Gate()
    ship = shipper(gate)
    ship.take(RunOutput("t", 1, "out", "first"))
    assert gate.reached.wait(10)
    ship.take(RunOutput("t", 1, "out", "a"))
    ship.take(RunOutput("t", 1, "err", "b"))
    gate.open.set()
    ship.close(10)
    _, part = gate.parts
    assert part.part == 1
    assert part.lines == (("out", "a"), ("err", "b"))
    assert not part.cut


def test_a_run_that_prints_without_end_is_cut_once_and_says_so() -> None:
    gate = Gate()
    gate.open.set()
    ship = shipper(gate, run_limit_bytes=1000)
    for number in range(500):
        ship.take(RunOutput("t", 1, "out", f"line {number:04}"))
    ship.take(RunOutput("t", 2, "out", "the next run begins anew"))
    ship.close(10)
    lines = texts(gate.parts)
    assert lines[:-1] == [f"line {number:04}" for number in range(len(lines) - 1)]
    assert len(lines) - 1 == 1000 // len("line 0000\n")
    assert "cut here" in lines[-1]
    assert [part.cut for part in gate.parts if part.epoch == 1][-1] is True
    assert texts(gate.parts, epoch=2) == ["the next run begins anew"]
    assert ship.dropped == 0  # cut by rule, not for want of Kafka


def test_while_kafka_takes_nothing_what_waits_is_bounded_and_the_loss_is_said() -> None:
    gate, capture = Gate(), LogCapture()
    ship = shipper(gate, capture, buffer_limit_bytes=10_000)
    ship.take(RunOutput("t", 1, "out", "first"))
    assert gate.reached.wait(10)
    for number in range(1000):  # returns at once each time, although nothing moves
        ship.take(RunOutput("t", 1, "out", f"{number}"))
    dropped = ship.dropped
    assert 900 < dropped < 1000
    gate.open.set()
    ship.close(10)
    lines = texts(gate.parts)
    assert lines[:2] == ["first", "0"]
    assert f"up to {dropped} lines of this run so far are missing" in lines[-1]
    assert len(lines) == 1 + (1000 - dropped) + 1
    assert [entry["since_start"] for entry in capture.entries if "not kept" in entry["event"]][-1] == dropped


def test_a_batch_that_failed_is_counted_and_what_comes_later_is_sent() -> None:
    gate, capture = Gate(), LogCapture()
    gate.fail_next = 1
    gate.open.set()
    ship = shipper(gate, capture)
    ship.take(RunOutput("t", 1, "out", "lost\nlost too"))
    deadline_s = time.monotonic() + 10
    while ship.dropped == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    ship.take(RunOutput("t", 1, "out", "kept"))
    ship.close(10)
    assert ship.dropped == 2
    assert texts(gate.parts) == [
        "kept",
        "up to 2 lines of this run so far are missing: Kafka did not take them in time",
    ]
    assert any("takes nothing" in entry["event"] for entry in capture.entries)


def test_close_gives_up_when_its_time_is_up_and_counts_what_was_left() -> None:
    gate, capture = Gate(), LogCapture()
    ship = shipper(gate, capture)
    ship.take(RunOutput("t", 1, "out", "in hand"))
    assert gate.reached.wait(10)
    ship.take(RunOutput("t", 1, "out", "waiting\nwaiting too"))
    ship.close(0.1)
    assert ship.dropped == 3
    ship.take(RunOutput("t", 1, "out", "too late"))
    assert ship.dropped == 4
    assert [entry["lines"] for entry in capture.entries if "not kept" in entry["event"]] == [3]
    gate.open.set()  # lets the thread end


def test_with_logs_off_nothing_is_kept_and_no_thread_is_made() -> None:
    before = threading.active_count()
    ship = shipper(Gate(), settings=Settings(logs=False))
    ship.take(RunOutput("t", 1, "out", "x"))
    assert threading.active_count() == before
    ship.close(1)
    assert ship.dropped == 0


def test_what_is_not_valid_text_is_sent_as_far_as_it_goes() -> None:
    gate = Gate()
    gate.open.set()
    ship = shipper(gate)
    ship.take(RunOutput("t", 1, "out", "a\udc80b"))
    ship.close(10)
    assert texts(gate.parts) == ["a?b"]


def test_without_kafka_a_run_prints_on_and_close_returns(unused_port: int) -> None:
    """The real producer, with nobody at the address."""
    capture = LogCapture()
    settings = Settings(bootstrap=f"127.0.0.1:{unused_port}")
    ship = OutputShipper(settings, "x.logs", PARTITIONS, "w", logger(capture), send_limit_s=1.0)
    for number in range(100):
        ship.take(RunOutput("t", 1, "out", str(number)))
    ship.close(30)
    assert ship.dropped == 100
    assert any("takes nothing" in entry["event"] for entry in capture.entries)
