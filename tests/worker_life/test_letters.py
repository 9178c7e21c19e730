"""Dead letters beside the lane: they wait while their topic takes nothing, and hold the offsets of their records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from fencepost.kafka.errors import DeliveryFailed, KafkaProblem
from fencepost.kafka.producer import Outgoing, Sent
from fencepost.kafka.transaction import OutRecord
from fencepost.settings import Settings
from fencepost.worker import letters as module
from fencepost.worker.letters import Letter, Letters
from tests.kafka.lane.harness import Notes, wait_until

LIMIT_S = 20.0


class FakeTopic:
    """Takes what `takes` says, and says when it was offered something."""

    def __init__(self, takes: Callable[[bytes], bool]) -> None:
        self.takes = takes
        self.written: list[bytes] = []
        self.offered = threading.Semaphore(0)
        self.closed = 0

    def make(self, _settings: Settings, _limit_s: float) -> Any:
        return self

    def send_each(self, records: Iterable[Outgoing]) -> list[Sent | KafkaProblem]:
        results: list[Sent | KafkaProblem] = []
        for record in records:
            value = record.value or b""
            if self.takes(value):
                self.written.append(value)
                results.append(Sent(record.topic, 0, len(self.written), 0))
            else:
                results.append(DeliveryFailed("not today"))
        self.offered.release()
        return results

    def close(self) -> None:
        self.closed += 1


def letter(offset: int | None, value: bytes, partition: int = 0) -> Letter:
    place = None if offset is None else ("triggers", partition, offset)
    return Letter(OutRecord("dead-letter", partition, b"k", value), place)


def test_a_letter_holds_its_offset_until_it_is_written() -> None:
    open_ = threading.Event()
    topic = FakeTopic(lambda _value: open_.is_set())
    notes = Notes()
    letters = Letters(Settings(), notes, topic.make)
    letters.take([letter(7, b"seven"), letter(5, b"five"), letter(9, b"nine", partition=1), letter(None, b"given up")])
    assert topic.offered.acquire(timeout=LIMIT_S)
    assert letters.hold("triggers", 0) == 5
    assert letters.hold("triggers", 1) == 9
    assert letters.hold("control", 0) is None
    wait_until("it is said", lambda: notes.of("the dead-letter topic takes nothing"))
    open_.set()
    wait_until("all written", lambda: letters.written == 4)
    assert letters.hold("triggers", 0) is None
    assert topic.written == [b"seven", b"five", b"nine", b"given up"]
    letters.close(LIMIT_S)


def test_only_what_was_not_written_is_offered_again() -> None:
    bad = {b"b"}
    topic = FakeTopic(lambda value: value not in bad)
    letters = Letters(Settings(), Notes(), topic.make)
    letters.take([letter(1, b"a"), letter(2, b"b"), letter(3, b"c")])
    wait_until("two written", lambda: letters.written == 2)
    assert letters.hold("triggers", 0) == 2
    bad.clear()
    wait_until("all written", lambda: letters.written == 3)
    assert topic.written == [b"a", b"c", b"b"]
    letters.close(LIMIT_S)


def test_a_record_that_is_read_again_while_its_letter_waits_gets_no_second_one() -> None:
    open_ = threading.Event()
    topic = FakeTopic(lambda _value: open_.is_set())
    letters = Letters(Settings(), Notes(), topic.make)
    letters.take([letter(1, b"a")])
    assert topic.offered.acquire(timeout=LIMIT_S)
    letters.take([letter(1, b"a again")])
    open_.set()
    wait_until("written", lambda: letters.written == 1)
    letters.close(LIMIT_S)
    assert topic.written == [b"a"]


def test_too_many_are_said_to_be_too_many_and_the_end_does_not_wait_for_them() -> None:
    topic = FakeTopic(lambda _value: False)
    letters = Letters(Settings(), Notes(), topic.make)
    assert not letters.full
    letters.take([letter(1, bytes(module.MOST_BYTES))])
    assert letters.full
    assert topic.offered.acquire(timeout=LIMIT_S)
    letters.close(LIMIT_S)
    assert topic.written == []
    assert topic.closed >= 1
