"""Lanes on a real broker: in a thread of their own, or turned by hand; and eyes of their own on the topics.

Nothing here waits for time to pass: `wait_until` waits for a condition, and says what it waited for when it gives up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost.codec import dumps, loads
from fencepost.core.ids import partition_of
from fencepost.core.lease import Lease
from fencepost.core.ownership import FenceRecord, Phase
from fencepost.core.task import Definition, PythonHandler
from fencepost.kafka.admin import init
from fencepost.kafka.namespace import NamespaceInfo
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.kafka.transaction import transactional_ids
from fencepost.settings import PROFILES, Settings
from fencepost.wire.owners import decode_fence
from fencepost.worker.clock import Clock
from fencepost.worker.context import LaneContext
from fencepost.worker.declared import Declared
from fencepost.worker.identity import Identity, new_identity
from fencepost.worker.lane import Lane
from fencepost.worker.meters import NoMeters
from fencepost.worker.orders import RunOutput
from tests.kafka.lane.fakes import FakeRunners

LIMIT_S = 60.0
PARTITIONS = 4
PROTOCOLS = ("classic", "consumer")
only_classic = pytest.mark.parametrize("protocol", ["classic"], indirect=True)  # where the protocol does not matter


def wait_until(what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The condition's value once it is true. Raises TimeoutError that says what did not come about."""
    until = time.monotonic() + limit_s
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > until:
            raise TimeoutError(f"not within {limit_s:g} s: {what}")
        # Between two looks, not in place of one. A look at a topic is work for the broker too, and others wait for it.
        time.sleep(min(max(0.01, 4 * (now - began)), 0.25))


class Notes:
    """A log that keeps its lines, so that a test can wait for a decision and read the reasons."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(("error", event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for _level, name, fields in self.lines if name == event]


@dataclass(frozen=True, slots=True)
class World:
    """A namespace on a broker, and what can be seen of it."""

    settings: Settings
    info: NamespaceInfo
    topics: Topics
    admin: AdminClient  # its own, for as long as it lasts: a client takes its unanswered requests with it

    @property
    def bootstrap(self) -> str:
        return self.settings.bootstrap

    def through(self, bootstrap: str) -> World:
        """The same namespace, reached by another way: a proxy, say."""
        return replace(self, settings=replace(self.settings, bootstrap=bootstrap))

    def with_client(self, **properties: str) -> World:
        client = {name.replace("_", "."): value for name, value in properties.items()}
        return replace(self, settings=replace(self.settings, client=client))

    def partition(self, task: str) -> int:
        return partition_of(task.encode(), self.info.partitions)

    def task_on(self, partition: int, number: int = 0) -> str:
        """The `number`-th ID of ours that belongs to this partition."""
        fitting = (name for name in (f"t-{n}" for n in range(100_000)) if self.partition(name) == partition)
        for _ in range(number):
            next(fitting)
        return next(fitting)

    # -- what lies in the topics ------------------------------------------------------------------------------------

    def records(self, topic: str, partition: int | None = None, *, all_: bool = False) -> list[Record]:
        """Committed records; `all_`: aborted and open ones too."""
        numbers = None if partition is None else [partition]
        isolation = "read_uncommitted" if all_ else "read_committed"
        return list(scan(self.settings, topic, numbers, isolation=isolation))

    def state(self, task: str) -> dict[str, Any] | None:
        """The newest committed state of the task."""
        newest = None
        for record in self.records(self.topics.state, self.partition(task)):
            if record.key == task.encode():
                newest = loads(record.value) if record.value is not None else None
        return newest

    def states(self) -> dict[str, dict[str, Any]]:
        newest: dict[str, dict[str, Any]] = {}
        for record in self.records(self.topics.state):
            if record.key is not None and b"\x1f" not in record.key and record.value is not None:
                newest[record.key_text] = loads(record.value)
        return newest

    def history(self, task: str) -> list[dict[str, Any]]:
        """Committed history of the task, in its order."""
        found = self.records(self.topics.runs, self.partition(task))
        return [loads(record.value) for record in found if record.key == task.encode() and record.value is not None]

    def kinds(self, task: str) -> list[tuple[str, int | None]]:
        """(kind, epoch) of each history record."""
        return [(body["kind"], body.get("epoch")) for body in self.history(task)]

    def fences(self, partition: int) -> list[FenceRecord]:
        """Committed fence records of the partition, in their order."""
        return [
            decode_fence(record.value)
            for record in self.records(self.topics.owners, partition)
            if record.key == str(partition).encode() and record.value is not None
        ]

    # -- what others produce ----------------------------------------------------------------------------------------

    def trigger(self, *tasks: str, payload: Any = None) -> None:
        """A trigger for each, from a plain producer with Java's partitioner."""
        self.produce(
            (self.topics.triggers, task, {"payload": payload} if payload is not None else {}) for task in tasks
        )

    def produce(self, records: Iterable[tuple[str, str | bytes | None, Any]], **config: Any) -> None:
        """(topic, key, body) through a plain producer; returns when all are acknowledged."""
        failures: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5, **config}
        )
        for topic, key, body in records:
            value = body if isinstance(body, bytes) or body is None else dumps(body)
            producer.produce(topic, value, key, on_delivery=lambda error, _message: failures.append(error))
        assert producer.flush(20) == 0
        assert not any(failures), failures

    def produce_to(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value, key, partition, headers=headers or {})  # type: ignore[arg-type]
        assert producer.flush(20) == 0

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below this offset; -1: all."""
        place = TopicPartition(topic, partition, before)
        (done,) = self.admin.delete_records([place]).values()
        done.result(20)


def make_world(bootstrap: str, namespace: str, protocol: str = "classic", partitions: int = PARTITIONS) -> World:
    settings = Settings(
        bootstrap=bootstrap, namespace=namespace, profile="quick", group_protocol=protocol, **PROFILES["quick"]
    )
    report = init(settings, partitions=partitions)
    assert report.info.group_protocol == protocol, report.notes
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}  # it may outlive the broker by a moment
    return World(settings, report.info, Topics(namespace), AdminClient(quiet))


def discard(world: World) -> None:
    """Delete the namespace's topics; the broker does it in its own time."""
    for done in world.admin.delete_topics([spec.name for spec in world.topics.specs()]).values():
        done.result(20)


def a_task(name: str = "t-*", **more: Any) -> Definition:
    return Definition(name, PythonHandler("work"), **more)


@dataclass(slots=True)
class Driven:
    """A lane with everything it needs. Turn it by hand (`turn`), or let it run in a thread (`start`)."""

    world: World
    runners: FakeRunners
    notes: Notes
    context: LaneContext
    lane: Lane
    failure: BaseException | None = None
    closing_limit_s: float = 0.3
    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)
    _resting: threading.Event = field(default_factory=threading.Event)
    _closed: bool = False

    # -- by hand ----------------------------------------------------------------------------------------------------

    def open(self) -> Driven:
        self.lane.open()
        return self

    def turn_until(self, what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        until = time.monotonic() + limit_s
        while not (value := condition()):
            if time.monotonic() > until:
                raise TimeoutError(f"not within {limit_s:g} s of turns: {what}; {self.notes.lines[-8:]}")
            self.lane.turn()
        return value

    # -- in a thread ------------------------------------------------------------------------------------------------

    def start(self) -> Driven:
        self._go.set()
        self._thread = threading.Thread(target=self._run, name=f"lane {self.context.lane}")
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.lane.open()
            while not self._ended.is_set():
                if not self._go.is_set():
                    self._resting.set()
                    self._go.wait()
                    self._resting.clear()
                self.lane.turn()
        except BaseException as failure:  # noqa: BLE001 - the test sees it in `failure`, and `close` raises it
            self.failure = failure
        finally:
            try:
                self.lane.close(self.closing_limit_s)
            except BaseException as failure:  # noqa: BLE001 - as above
                self.failure = self.failure or failure

    def rest(self) -> None:
        """The thread stops between two turns: nothing is polled, nothing renewed."""
        self._go.clear()
        assert self._resting.wait(LIMIT_S)

    def go_on(self) -> None:
        self._go.set()

    def wait(self, what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        """Like `wait_until`; a lane that failed meanwhile is the answer at once."""

        def looked() -> Any:
            if self.failure is not None:
                raise self.failure
            return condition()

        try:
            return wait_until(what, looked, limit_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the lane's last lines: {self.notes.lines[-8:]}") from None

    def close(self) -> None:
        """Give everything back; raises what the lane failed on."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            self.lane.close(self.closing_limit_s)
        else:
            self._ended.set()
            self._go.set()
            self._thread.join(60)
            assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    # -- what it has ------------------------------------------------------------------------------------------------

    def held(self) -> set[int]:
        """Partitions it holds and serves."""
        partitions = dict(self.context.partitions)
        return {number for number, partition in partitions.items() if partition.holding.phase is Phase.HELD}

    def holds_all(self) -> bool:
        return len(self.held()) == self.world.info.partitions

    def nonce(self, partition: int) -> str:
        return self.context.partitions[partition].nonce


def make_lane(
    world: World,
    *,
    worker: str | None = None,
    runners: FakeRunners | None = None,
    tasks: Iterable[Definition] | None = None,
    newer_incarnation: Callable[[], bool] = lambda: False,
    on_output: Callable[[RunOutput], None] = lambda _output: None,
    ordinal: int = 0,
    static: bool = False,
    **overrides: Any,
) -> Driven:
    """A lane of its own worker, as `worker.py` makes one, with runners that tests script."""
    settings = replace(world.settings, session_timeout_s=world.info.session_timeout_s, **overrides)
    made = new_identity(None)
    identity = Identity(worker or made.worker, made.incarnation, static)
    if runners is None:
        runners = FakeRunners(settings.margin_s)
    notes = Notes()
    context = LaneContext(
        settings=settings,
        topics=world.topics,
        partition_count=world.info.partitions,
        handover_limit_s=settings.handover_limit(world.info.group_protocol),
        identity=identity,
        ordinal=ordinal,
        lane=identity.lane_id(ordinal),
        ring=transactional_ids(settings.namespace, identity.worker, ordinal),
        runners=runners,
        declared=Declared([a_task()] if tasks is None else tasks, ["work"]),
        clock=Clock(),
        lease=Lease(settings.lease_ttl_s, settings.renewal_s),
        meters=NoMeters(),
        log=notes,
        topic_ids={name: world.info.topic_ids[name] for name in world.topics.guarded},
    )
    lane = Lane(context, world.info.group_protocol, on_output, newer_incarnation)
    return Driven(world, runners, notes, context, lane)


@contextmanager
def running(*lanes: Driven) -> Iterator[None]:
    """Start these lanes in threads; give everything back at the end."""
    try:
        for each in lanes:
            each.start()
        yield
    except BaseException:
        for each in lanes:
            _close_quietly(each)
        raise
    else:
        for each in lanes:
            each.close()


def _close_quietly(lane: Driven) -> None:
    """After a test failed already, its own failure is what counts; the lane's is added to it."""
    try:
        lane.close()
    except BaseException as failure:  # noqa: BLE001 - reported beside the test's own
        print(f"lane {lane.context.lane} failed: {failure!r}\n{lane.notes.lines[-8:]}")
