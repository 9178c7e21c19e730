"""The admin client that `Bounds` asks, and the pool of threads that some calls are made in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition

from fencepost.kafka.errors import Unavailable
from fencepost.kafka.reader import Place
from fencepost.kafka.scan import Record
from fencepost.settings import Settings
from tests.simulation import stage
from tests.simulation.kernel import Fiber
from tests.simulation.network import TIMEOUT
from tests.simulation.requests import SOCKET_TIMEOUT_S, ask, at_once, raised

_T = TypeVar("_T")
_EARLIEST = -2


class _Offset:
    def __init__(self, offset: int) -> None:
        self.offset = offset


class _Topic:
    topic_id = "the-first"


class _Done(Generic[_T]):
    """The answer, or what to raise."""

    def __init__(self, value: _T | None) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def result(self, _timeout_s: float) -> _T:
        if self._value is None:
            raise raised("_TIMED_OUT")
        return self._value


class SimAdmin:
    """Stands for `confluent_kafka.admin.AdminClient`. A call waits for its answer at once."""

    def __init__(self, _config: dict[str, Any]) -> None:
        self._process = stage.here()
        self._broker = self._process.world.broker

    def list_offsets(
        self, asked: dict[TopicPartition, Any], isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[TopicPartition, _Done[_Offset]]:
        committed = isolation_level == IsolationLevel.READ_COMMITTED

        def answer() -> dict[tuple[str, int], int]:
            found = {}
            for at, spec in asked.items():
                log = self._broker.log((at.topic, at.partition))
                earliest = spec._value == _EARLIEST
                found[at.topic, at.partition] = 0 if earliest else log.stable if committed else log.end
            return found

        found = self._ask("ListOffsets", answer, request_timeout)
        if found is TIMEOUT:
            return {at: _Done(None) for at in asked}
        return {at: _Done(_Offset(found[at.topic, at.partition])) for at in asked}

    def describe_topics(self, topics: TopicCollection, request_timeout: float) -> dict[str, _Done[_Topic]]:
        answer = self._ask("DescribeTopics", lambda: True, request_timeout)
        return {name: _Done(None if answer is TIMEOUT else _Topic()) for name in topics.topic_names}

    def _ask(self, kind: str, answer: Callable[[], Any], timeout_s: float) -> Any:
        until_us = self._process.world.kernel.now_us + self._process.clock.true_us(timeout_s)
        return ask(self._process, kind, at_once(answer), until_us, lambda: None)


class SimFuture(Future[_T]):
    """A future whose `result` blocks the fiber, not the thread."""

    def __init__(self) -> None:
        super().__init__()
        self._waiter: Fiber | None = None

    def result(self, timeout: float | None = None) -> _T:
        kernel = stage.world().kernel
        while not self.done():
            self._waiter = kernel.current
            assert self._waiter is not None
            self._waiter.block(None)
        return super().result(0)

    def settle(self, value: Any, failure: BaseException | None) -> None:
        if failure is not None:
            self.set_exception(failure)
        else:
            self.set_result(value)
        if self._waiter is not None:
            self._waiter.wake()


class SimPool:
    """Stands for `ThreadPoolExecutor`: each job is a fiber of the process."""

    def __init__(self, _most: int, thread_name_prefix: str = "") -> None:
        self._jobs: list[SimFuture[Any]] = []

    def __enter__(self) -> SimPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._wait()

    def submit(self, work: Callable[..., _T], *arguments: Any) -> SimFuture[_T]:
        future: SimFuture[_T] = SimFuture()
        self._jobs.append(future)
        stage.here().spawn(lambda: work(*arguments), future.settle)
        return future

    def map(self, work: Callable[[Any], _T], items: Iterable[Any]) -> Iterator[_T]:
        jobs = [self.submit(work, item) for item in items]
        return iter([job.result() for job in jobs])

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        if wait:
            self._wait()

    def _wait(self) -> None:
        for job in self._jobs:
            while not job.done():
                job._waiter = stage.world().kernel.current
                assert job._waiter is not None
                job._waiter.block(None)


class SimCalls:
    """Stands for `BoundedCalls`: the simulated client keeps to its limits, so nobody has to be left behind."""

    def call(self, work: Callable[[], object], _limit_s: float) -> None:
        work()

    def close(self) -> None:
        return None


def open_records(_settings: Settings, place: Place, committed_end: int, stall_s: float) -> list[Record]:
    """Stands for a scan of what lies behind the committed end."""
    process = stage.here()
    world = process.world

    def answer() -> list[Record]:
        entries = [entry for entry in world.broker.log(place).entries[committed_end:] if not entry.marker]
        return [Record(*place, entry.offset, entry.key, entry.value, (), entry.at_ms) for entry in entries]

    until_us = world.kernel.now_us + process.clock.true_us(stall_s)
    found = ask(process, "Fetch", at_once(answer), until_us, lambda: None)
    if found is TIMEOUT:
        raise Unavailable("no answer from Kafka")
    return list(found)


def scan(_settings: Settings, topic: str, partitions: Sequence[int], from_: int, *, stall_s: float) -> list[Record]:
    """Stands for a bounded read of what is committed."""
    process = stage.here()
    world = process.world

    def answer() -> list[Record]:
        return [
            Record(topic, number, entry.offset, entry.key, entry.value, (), entry.at_ms)
            for number in partitions
            for entry in world.broker.log((topic, number)).readable(max(from_, 0))
        ]

    until_us = world.kernel.now_us + process.clock.true_us(stall_s)
    found = ask(process, "Fetch", at_once(answer), until_us, lambda: None)
    if found is TIMEOUT:
        raise Unavailable("no answer from Kafka")
    return list(found)


class SimLetters:
    """Stands for `Letters`: what was set aside is sent beside the lane, and its thread is an event of the kernel."""

    def __init__(self, _settings: Settings, _log: Any) -> None:
        self._process = stage.here()
        self._waiting: dict[int, tuple[Any, Any]] = {}  # number -> record, place
        self._numbers = 0
        self.full = False
        self.written = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def take(self, letters: Iterable[Any]) -> None:
        places = {place for _record, place in self._waiting.values()}
        for letter in letters:
            if letter.place is None or letter.place not in places:
                self._numbers += 1
                self._waiting[self._numbers] = (letter.record, letter.place)
                self._send(self._numbers)

    def hold(self, topic: str, partition: int) -> int | None:
        places = [place for _record, place in self._waiting.values() if place is not None]
        return min((place[2] for place in places if place[:2] == (topic, partition)), default=None)

    def close(self, _limit_s: float) -> None:
        return None

    def _send(self, number: int) -> None:
        record = self._waiting[number][0]
        write = at_once(
            lambda: self._process.world.broker.write((record.topic, record.partition), record.key, record.value)
        )
        limit_us = self._process.clock.true_us(SOCKET_TIMEOUT_S)
        self._process.world.network.send(
            self._process, "PlainProduce", write, lambda a: self._sent(number, a), limit_us
        )

    def _sent(self, number: int, answer: Any) -> None:
        if isinstance(answer, int):
            del self._waiting[number]
            self.written += 1
            self._process.kick()
        else:
            self._process.after_local_us(self._process.clock.true_us(1.0), lambda: self._send(number))
