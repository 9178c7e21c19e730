"""Dead letters on their way: beside the lane's transactions, so that no run waits for the dead-letter topic.

A transaction that touches a partition which takes nothing cannot even be aborted: the broker has to write a marker
there, and until it can, the producer is of no use. So letters are sent by a producer of their own, and the offset of
the record that one is about is not counted as done before it is written. If the worker dies in between, the next owner
reads the record again and says the same of it: a letter may be written twice. One of work that was given up has no
such record: it is lost if the worker dies before the topic took it; the history has the end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.producer import Outgoing, Producer, Sent
from fencepost.kafka.transaction import OutRecord
from fencepost.settings import Settings

SEND_LIMIT_S = 10.0
RETRY_S = 1.0
SAY_EVERY_S = 10.0
AT_ONCE = 100
MOST_BYTES = 32 * 1024 * 1024  # with more than that waiting, triggers are left in Kafka
Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, and the place of the record that it is about; None: work that was given up."""

    record: OutRecord
    place: Place | None = None


class Letters:
    """Those that wait, in their order. `take` and `hold` by the lane's thread; one of its own sends."""

    def __init__(
        self, settings: Settings, log: Any, make_producer: Callable[[Settings, float], Producer] = Producer
    ) -> None:
        self._settings, self._log, self._make_producer = settings, log, make_producer
        self._changed = threading.Condition()
        self._waiting: deque[Letter] = deque()
        self._offsets: dict[tuple[str, int], set[int]] = {}  # by topic and partition, of the records they are about
        self._bytes = 0
        self._closing = False
        self._say_at_s = 0.0
        self._thread: threading.Thread | None = None
        self.written = 0  # since the start

    @property
    def full(self) -> bool:
        """Whether no more should be made for now."""
        return self._bytes >= MOST_BYTES

    def take(self, letters: Iterable[Letter]) -> None:
        """Send them when the topic takes them. One that is known by its place is not taken twice."""
        with self._changed:
            for letter in letters:
                if letter.place is not None:
                    topic, partition, offset = letter.place
                    known = self._offsets.setdefault((topic, partition), set())
                    if offset in known:
                        continue
                    known.add(offset)
                self._waiting.append(letter)
                self._bytes += len(letter.record.value or b"")
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._work, name="fencepost-letters", daemon=True)
                self._thread.start()
            self._changed.notify()

    def hold(self, topic: str, partition: int) -> int | None:
        """The first offset of the partition whose letter waits: it is not to be counted as done."""
        with self._changed:
            return min(self._offsets.get((topic, partition), ()), default=None)

    def close(self, limit_s: float) -> None:
        """Send what waits, for at most so long. What is left is read again by the next owner. Safe to call twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(limit_s)

    def _work(self) -> None:
        producer: Producer | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                some = [self._waiting[index] for index in range(min(AT_ONCE, len(self._waiting)))]
                closing = self._closing
            if not some:
                break
            if producer is None:
                producer = self._make_producer(self._settings, SEND_LIMIT_S)
            results = producer.send_each(_outgoing(letter.record) for letter in some)
            problems = [result for result in results if isinstance(result, KafkaProblem)]
            self._done([letter for letter, result in zip(some, results, strict=True) if isinstance(result, Sent)])
            if problems:
                self._say(str(problems[0]), len(self._waiting))
                producer.close()  # what is left in it must not come late
                producer = None
                if closing:
                    break
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, RETRY_S)
        if producer is not None:
            producer.close()

    def _done(self, written: list[Letter]) -> None:
        with self._changed:
            for letter in written:
                self._waiting.remove(letter)
                self._bytes -= len(letter.record.value or b"")
                if letter.place is not None:
                    self._offsets[letter.place[:2]].discard(letter.place[2])
            self.written += len(written)

    def _say(self, why: str, waiting: int) -> None:
        if time.monotonic() >= self._say_at_s:
            self._say_at_s = time.monotonic() + SAY_EVERY_S
            self._log.warning("the dead-letter topic takes nothing", waiting=waiting, why=why)


def _outgoing(record: OutRecord) -> Outgoing:
    return Outgoing(record.topic, record.key, record.value, dict(record.headers or ()), record.partition)
