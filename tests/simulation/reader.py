"""The reader's consumer: assigned by hand, committed records only, fetched ahead in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tests.simulation import stage
from tests.simulation.broker import Broker
from tests.simulation.kernel import Fiber
from tests.simulation.log import Headers, Log, Place

FETCH_US = (200, 1_500)
SHORT_US = 1_000
ROUND_US = 100  # what a round of the lane's loop costs when it does not wait at all


class SimMessage:
    """What `take` gives: a record, or the news that a partition's end was reached."""

    __slots__ = ("_at_ms", "_error", "_headers", "_key", "_offset", "_place", "_value", "version")

    def __init__(
        self, place: Place, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, at_ms: int,
        version: int, error: KafkaError | None = None,
    ) -> None:  # fmt: skip
        self._place, self._offset, self._key, self._value = place, offset, key, value
        self._headers, self._at_ms, self._error, self.version = headers, at_ms, error, version

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 2, self._at_ms

    def error(self) -> KafkaError | None:
        return self._error


class _Fetched:
    """Where the fetching of one place stands. `version` tells this assignment from an earlier one."""

    __slots__ = ("at_end", "due", "log", "position", "version", "watch")

    def __init__(self, log: Log, position: int, version: int, watch: Callable[[], None]) -> None:
        self.log, self.position, self.version, self.watch = log, position, version, watch
        self.due = False
        self.at_end = -1


class SimReader:
    """Stands for `confluent_kafka.Consumer` where it never joins a group."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self._process = stage.here()
        self._kernel = self._process.world.kernel
        self._random = self._process.world.random
        self._broker: Broker = self._process.world.broker
        self._places: dict[Place, _Fetched] = {}
        self._versions = 0
        self._ready: deque[SimMessage] = deque()
        self._paused: set[Place] = set()
        self._waiting: Fiber | None = None
        self._process.kick = self.kick

    def list_topics(self, _topic: str, timeout: float) -> None:
        return None

    def incremental_assign(self, wanted: list[TopicPartition]) -> None:
        for item in wanted:
            place = (item.topic, item.partition)
            self._versions += 1
            log = self._broker.log(place)

            def watch(place: Place = place) -> None:
                self._plan(place)

            self._places[place] = _Fetched(log, max(item.offset, 0), self._versions, watch)
            log.watchers.append(watch)
            self._plan(place)

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for item in places:
            self._drop((item.topic, item.partition))

    def pause(self, places: list[TopicPartition]) -> None:
        self._paused.update((item.topic, item.partition) for item in places)

    def resume(self, places: list[TopicPartition]) -> None:
        for item in places:
            place = (item.topic, item.partition)
            self._paused.discard(place)
            self._plan(place)

    def poll(self, timeout_s: float) -> SimMessage | None:
        message = self._next()
        if message is None:
            self._waiting = self._kernel.current
            assert self._waiting is not None
            wait_us = max(ROUND_US, self._process.clock.true_us(timeout_s))
            if self._process.has_news():  # not no time at all: who does not look at the news would loop for ever
                wait_us = min(wait_us, SHORT_US)
            self._waiting.block(self._kernel.now_us + wait_us)
            self._waiting = None
            message = self._next()
        return message

    def consume(self, limit: int, _timeout_s: float) -> list[SimMessage]:
        taken: list[SimMessage] = []
        while len(taken) < limit and (message := self._next()) is not None:
            taken.append(message)
        return taken

    def close(self) -> None:
        for place in list(self._places):
            self._drop(place)

    def kick(self) -> None:
        """Something else than a record wants the lane's attention."""
        if self._waiting is not None:
            self._waiting.wake()

    # -- inside --

    def _drop(self, place: Place) -> None:
        fetched = self._places.pop(place, None)
        self._paused.discard(place)
        if fetched is not None:
            fetched.log.watchers.remove(fetched.watch)

    def _next(self) -> SimMessage | None:
        while self._ready:
            message = self._ready.popleft()
            fetched = self._places.get(message._place)
            if fetched is not None and fetched.version == message.version:
                return message
        return None

    def _plan(self, place: Place) -> None:
        """More of it may be readable: fetch it after a moment."""
        fetched = self._places.get(place)
        if fetched is None or fetched.due or place in self._paused:
            return
        fetched.due = True
        self._kernel.after(int(FETCH_US[0] + self._random.random() * FETCH_US[1]), lambda: self._fetch(place, fetched))

    def _fetch(self, place: Place, fetched: _Fetched) -> None:
        fetched.due = False
        if self._places.get(place) is not fetched or self._process.dead:
            return
        if self._process.paused:
            self._process.when_running(lambda: self._plan(place))
            return
        again_us = self._process.unreachable_until_us()
        if again_us is not None:
            fetched.due = True
            self._kernel.at(
                again_us + int(FETCH_US[0] + self._random.random() * FETCH_US[1]), lambda: self._fetch(place, fetched)
            )
            return
        stable = fetched.log.stable
        for entry in fetched.log.readable(fetched.position):
            self._ready.append(
                SimMessage(place, entry.offset, entry.key, entry.value, entry.headers, entry.at_ms, fetched.version)
            )
        fetched.position = stable
        if fetched.at_end != stable:
            fetched.at_end = stable
            self._ready.append(SimMessage(place, stable, None, None, None, 0, fetched.version, _end()))
        self.kick()


def _end() -> KafkaError:
    return KafkaError(KafkaError._PARTITION_EOF)
