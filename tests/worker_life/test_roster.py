"""A worker's record, and which of two processes of one name is the newer, on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog

from fencepost.codec import dumps
from fencepost.kafka.admin import init
from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.settings import PROFILES, Settings
from fencepost.version import __version__
from fencepost.wire.worker_info import WorkerInfo, decode_worker_info, different_time_data
from fencepost.worker.identity import Identity
from fencepost.worker.roster import About, Load, Roster, long_gone

if TYPE_CHECKING:
    from fencepost.broker import Cluster

pytestmark = pytest.mark.kafka
Make = Callable[..., Roster]


@pytest.fixture
def settings(kafka: Cluster, namespace: str) -> Settings:
    found = Settings(bootstrap=kafka.bootstrap, namespace=namespace, profile="quick", **PROFILES["quick"])
    init(found, partitions=1)
    return found


@pytest.fixture
def make(settings: Settings) -> Iterator[Make]:
    """Rosters; those still going leave when the test ends."""
    with ExitStack() as stack:

        def new(incarnation: str, worker: str = "w", every_s: float = 3600.0, **rest: object) -> Roster:
            load = rest.get("load", Load)
            keep_s = rest.get("keep_s", 86_400.0)
            about = rest.get("about", About())
            roster = Roster(
                settings,
                Topics(settings.namespace),
                Identity(worker, incarnation, static=True),
                about,  # type: ignore[arg-type]
                load,  # type: ignore[arg-type]
                structlog.get_logger("test"),
                every_s,
                keep_s,  # type: ignore[arg-type]
            )
            stack.callback(roster.leave, 15)
            return roster

        yield new


def records(settings: Settings, worker: str = "w") -> list[WorkerInfo]:
    found = scan(settings, Topics(settings.namespace).workers)
    return [decode_worker_info(record.value or b"") for record in found if record.key == worker.encode()]


def last_of(settings: Settings) -> dict[bytes | None, bytes | None]:
    """The last value under each key."""
    return {record.key: record.value for record in scan(settings, Topics(settings.namespace).workers)}


def produce(settings: Settings, key: str, value: bytes | None) -> None:
    with Producer(settings) as producer:
        producer.send(Outgoing(Topics(settings.namespace).workers, key, value))


def test_the_record_says_who_where_and_with_what(settings: Settings, make: Make) -> None:
    about = About(handlers=("b", "a"), mechanism={"containment": "pid-namespace"}, notes=("kvm-clock",))
    load = Load(in_flight=3, partitions=(0, 5), lanes=("w/0/i1",))
    make("i1", about=about, load=lambda: load).announce()
    (info,) = records(settings)
    assert (info.worker, info.incarnation, info.status, info.version) == ("w", "i1", "active", __version__)
    assert (info.handlers, info.mechanism, info.notes) == (("a", "b"), about.mechanism, ("kvm-clock",))
    assert (info.load, info.partitions, info.lanes, info.capacity) == (3, (0, 5), ("w/0/i1",), settings.slots)
    assert info.tzdata
    assert info.clock_source
    assert info.announced is None


def test_workers_with_different_time_data_are_told_apart_and_those_that_are_gone_do_not_count() -> None:
    def worker(name: str, tzdata: str, status: str = "active", holidays: str = "1") -> WorkerInfo:
        return WorkerInfo(name, "i", "h", 1, "v", status, 1, 0, (), (), 0, 0, tzdata=tzdata, holidays=holidays)

    now_ms = 1_000_000_000
    same = [(worker("a", "2026f"), now_ms), (worker("b", "2026f"), now_ms - 5_000)]
    gone = [(worker("c", "2022a", "left"), now_ms), (worker("d", "2022a"), now_ms - 60_000), (worker("e", ""), now_ms)]
    assert different_time_data([]) == different_time_data([*same, *gone]) == {}
    assert different_time_data([*same, (worker("f", "2022a"), now_ms)]) == {
        "tzdata 2022a, holidays 1": ["f"],
        "tzdata 2026f, holidays 1": ["a", "b"],
    }
    assert len(different_time_data([*same, (worker("f", "2026f", holidays="2"), now_ms)])) == 2


def test_announced_it_lies_in_kafka_before_anything_else_happens(settings: Settings, make: Make) -> None:
    roster = make("i1")
    assert records(settings) == []
    roster.announce()
    assert [info.incarnation for info in records(settings)] == ["i1"]


def test_it_is_written_again_as_time_passes_and_at_each_change_of_status(settings: Settings, make: Make) -> None:
    writes = threading.Semaphore(0)

    def load() -> Load:
        writes.release()
        return Load()

    beating = make("i1", worker="beating", every_s=0.1, load=load)
    beating.announce()
    beating.start()
    for _ in range(4):
        assert writes.acquire(timeout=15)
    changing = make("i1", worker="changing")
    changing.announce()
    changing.start()
    changing.set_status("draining")
    assert changing.leave(15)
    assert beating.leave(15)
    statuses = [info.status for info in records(settings, "changing")]
    assert statuses[0] == "active"
    assert statuses[-1] == "left"
    assert set(statuses) <= {"active", "draining", "left"}
    assert len(records(settings, "beating")) >= 4


def test_a_change_of_status_is_written_without_waiting_for_the_next_turn(settings: Settings, make: Make) -> None:
    written = threading.Semaphore(0)

    def load() -> Load:
        written.release()
        return Load()

    roster = make("i1", load=load)
    roster.announce()
    roster.start()
    assert written.acquire(timeout=15)  # announced
    assert written.acquire(timeout=15)  # the thread's first
    roster.set_status("draining")
    assert written.acquire(timeout=15)  # the next regular one is an hour away
    roster.leave(15)
    assert [info.status for info in records(settings)][-2:] == ["draining", "left"]


def test_alone_no_newer_process_is_found(settings: Settings, make: Make) -> None:
    roster = make("i1", every_s=0.05)
    roster.announce()
    roster.start()
    make("i2", worker="another").announce()
    assert not roster.newer_incarnation()


def test_the_older_of_two_processes_learns_of_the_newer_and_not_the_other_way_round(
    settings: Settings, make: Make
) -> None:
    old = make("z-old")
    old.announce()
    new = make("a-new")
    new.announce()
    assert old.newer_incarnation()
    assert not new.newer_incarnation()


def test_an_older_process_that_goes_on_writing_does_not_pass_for_the_newer(settings: Settings, make: Make) -> None:
    writes = threading.Semaphore(0)

    def load() -> Load:
        writes.release()
        return Load()

    old = make("old", every_s=0.05, load=load)
    old.announce()
    new = make("new")
    new.announce()
    old.start()
    for _ in range(5):
        assert writes.acquire(timeout=15)
    assert [info.incarnation for info in records(settings)][-1] == "old"
    assert not new.newer_incarnation()
    assert old.newer_incarnation()


def test_the_newer_is_still_known_by_a_later_record_when_its_announcement_was_compacted_away(
    settings: Settings, make: Make
) -> None:
    old = make("old")
    old.announce()
    later = replace(records(settings)[0], incarnation="new", announced=1)
    from fencepost.wire.worker_info import encode_worker_info

    produce(settings, "w", encode_worker_info(later))
    assert old.newer_incarnation()


def test_a_newer_process_of_a_later_version_counts_and_rubbish_does_not(settings: Settings, make: Make) -> None:
    roster = make("i1")
    roster.announce()
    for value in (b"not json", b"[]", b"{}", b'{"incarnation": "x", "announced": "y"}', None):
        produce(settings, "w", value)
    assert not roster.newer_incarnation()
    produce(settings, "w", dumps({"v": 99, "incarnation": "i2", "shape": "unknown here"}))
    assert roster.newer_incarnation()


def test_when_it_cannot_be_told_that_is_an_error_and_not_a_no(settings: Settings, make: Make, unused_port: int) -> None:
    roster = make("i1")
    roster.announce()
    cut_off = replace(settings, bootstrap=f"127.0.0.1:{unused_port}")
    roster._settings = cut_off
    with pytest.raises(KafkaProblem):
        roster.newer_incarnation()
    roster._settings = settings


def test_a_worker_that_starts_deletes_the_records_of_those_long_gone(settings: Settings, make: Make) -> None:
    gone = make("i1", worker="gone")
    gone.announce()
    assert gone.leave(15)
    new = make("i1", worker="new", keep_s=0.001)
    new.announce()
    new.start()
    until_s = time.monotonic() + 30
    while last_of(settings)[b"gone"] is not None:
        assert time.monotonic() < until_s
    new.leave(15)
    another = make("i1", worker="another", keep_s=86_400.0)
    another.announce()
    another.start()
    another.leave(15)
    assert last_of(settings)[b"gone"] is None
    assert last_of(settings)[b"new"] is not None


def test_gone_is_told_by_the_brokers_clock_and_the_last_record_of_each() -> None:
    def at(at_ms: int, key: bytes | None, value: bytes | None = b"{}") -> Record:
        return Record("workers", 0, at_ms, key, value, (), at_ms)

    records = [at(1, b"a"), at(2, b"b"), at(3, b"deleted"), at(4, b"deleted", None), at(5, None), at(900, b"b")]
    assert long_gone([*records, at(1001, b"me")], 1000) == {b"a"}
    assert long_gone([*records, at(1001, b"me")], 1001) == set()
    assert long_gone([], 0) == set()


def test_before_it_is_announced_it_can_neither_start_nor_be_asked(make: Make) -> None:
    roster = make("i1")
    with pytest.raises(RuntimeError, match="announce"):
        roster.start()
    with pytest.raises(RuntimeError, match="announce"):
        roster.newer_incarnation()
