"""A worker's own record in the workers topic: for people to see, and for workers of one name to find each other.

Two processes may carry one worker ID: a restart while the old one hangs, or a mistake. Which is the newer is decided by
the log, not by clocks: each process announces itself with a record, acknowledged before its lanes' producers are
initialised, and the offset of that record is its age. All its later records name that offset, since the older process
goes on writing too and compaction keeps the last record only.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fencepost.codec import BadRecord, loads
from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.producer import Outgoing, Producer
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.version import __version__
from fencepost.wire.worker_info import WorkerInfo, decode_worker_info, different_time_data, encode_worker_info
from fencepost.worker.identity import Identity
from fencepost.worker.machine_checks import clock_source, holidays_version, tzdata_version

WRITE_EVERY_S = 5.0
COMPARE_EVERY_S = 30.0
SEND_LIMIT_S = 10.0
HANDLERS = 1000
KEEP_S = 86_400.0  # how long the record of a worker that is gone can be seen
TIDY_MOST = 1000

_HEADERS = {"content-type": "application/json", "ce_type": "fencepost.worker"}


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker carries right now."""

    in_flight: int = 0
    partitions: tuple[int, ...] = ()
    lanes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a worker when it starts. mechanism: the guard's report; notes: what is weaker here."""

    handlers: tuple[str, ...] = ()
    mechanism: Mapping[str, Any] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()


class Roster:
    """Writes this worker's record, and tells whether a newer process has its ID.

    Order of use: `announce` (again, until it returns), then the lanes, then `start`; `set_status("draining")`; `leave`.
    `load` is called in the roster's thread and must not block. `newer_incarnation` may be called from any thread.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        identity: Identity,
        about: About,
        load: Callable[[], Load],
        log: Any,
        every_s: float = WRITE_EVERY_S,
        keep_s: float = KEEP_S,
    ) -> None:
        self._settings, self._topic, self._identity = settings, topics.workers, identity
        self._load, self._log, self._every_s, self._keep_s = load, log, every_s, keep_s
        now_ms = _now_ms()
        self._info = WorkerInfo(
            worker=identity.worker,
            incarnation=identity.incarnation,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            status="active",
            capacity=settings.slots,
            load=0,
            handlers=tuple(sorted(about.handlers)[:HANDLERS]),
            lanes=(),
            started_ms=now_ms,
            at_ms=now_ms,
            notes=about.notes,
            mechanism=about.mechanism,
            tzdata=tzdata_version(),
            holidays=holidays_version(),
            clock_source=clock_source(),
        )
        self._changed = threading.Condition()
        self._status = "active"
        self._written_status: str | None = None
        self._closing = False
        self._different: dict[str, list[str]] = {}
        self._announced: int | None = None
        self._producer: Producer | None = None
        self._sending = threading.Lock()  # one thread at a time may use the producer
        self._thread: threading.Thread | None = None

    def announce(self) -> None:
        """Write the first record and wait until it is acknowledged.

        Raises KafkaProblem (DeliveryFailed, DeliveryUnknown, …): not announced, call again.
        """
        with self._sending:
            self._announced = None
            self._announced = self._write("active")
        self._log.info("announced", worker=self._identity.worker, offset=self._announced)

    def start(self) -> None:
        """Write again every few seconds and whenever the status changes. After `announce` only."""
        if self._announced is None:
            raise RuntimeError("announce() comes first: without it nobody can tell this process from an older one")
        self._thread = threading.Thread(target=self._work, name="fencepost-roster", daemon=True)
        self._thread.start()

    def set_status(self, status: str) -> None:
        """active or draining; written soon, without waiting."""
        with self._changed:
            self._status = status
            self._changed.notify()

    def leave(self, limit_s: float) -> bool:
        """Say `left` and stop, within about `limit_s`. False if Kafka did not take it. Safe to call twice."""
        until_s = time.monotonic() + limit_s
        with self._changed:
            if self._closing:
                return self._written_status == "left"
            self._closing = True
            self._status = "left"
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fencepost-roster", daemon=True)
            self._thread.start()
        self._thread.join(max(0.0, until_s - time.monotonic()))
        return self._written_status == "left"

    def newer_incarnation(self) -> bool:
        """Whether a process that announced itself after this one has the same worker ID.

        Reads the topic from the own announcement to its end as of now. Raises KafkaProblem where that cannot be told.
        """
        own = self._announced
        if own is None:
            raise RuntimeError("announce() comes first: ages are counted from it")
        # A lane asks, and its guard ends the worker if the lane does not beat for one lease.
        stall_s = min(5.0, max(0.5, self._settings.lease_ttl_s / 4))
        return any(self._is_newer(record, own) for record in self._records_after(own, stall_s))

    def _records_after(self, own: int, stall_s: float) -> Iterable[Record]:
        wanted = self._identity.worker.encode()
        for record in scan(self._settings, self._topic, [0], from_=own + 1, stall_s=stall_s):
            if record.key == wanted and record.value is not None:
                yield record

    def _is_newer(self, record: Record, own: int) -> bool:
        """Only the two fields that matter are read: the other process may be of a later version of Fencepost."""
        try:
            body = loads(record.value or b"")
            incarnation, announced = str(body["incarnation"]), int(body.get("announced", record.offset))
        except (BadRecord, KeyError, TypeError, ValueError, AttributeError) as error:
            self._log.warning("not a worker's record", offset=record.offset, why=str(error))
            return False
        return incarnation != self._identity.incarnation and announced > own

    def _work(self) -> None:
        problem_said = tidied = False
        compare_at_s = time.monotonic()
        while True:
            with self._changed:
                status, closing = self._status, self._closing
            try:
                with self._sending:
                    self._write(status)
                    if not (tidied or closing):
                        self._tidy()
                        tidied = True
                    if not closing and time.monotonic() >= compare_at_s:
                        self._compare()
                        compare_at_s = time.monotonic() + COMPARE_EVERY_S
                problem_said = False
            except KafkaProblem as problem:
                if not problem_said:
                    self._log.warning("the workers topic takes nothing", why=str(problem))
                problem_said = True
            except Exception:  # noqa: BLE001
                # The record is for people to see: its thread must outlive whatever goes wrong once.
                self._log.exception("the worker's record could not be written")
            if closing:
                break
            with self._changed:
                if not self._closing and self._status == status:
                    self._changed.wait(self._every_s)
        self._drop_producer()

    def _write(self, status: str) -> int:
        """Returns the record's offset. After a failure the producer is thrown away: it must not write out of turn."""
        load = self._load()
        info = replace(
            self._info,
            status=status,
            load=load.in_flight,
            partitions=load.partitions,
            lanes=load.lanes,
            at_ms=_now_ms(),
            announced=self._announced,
        )
        if self._producer is None:
            self._producer = Producer(self._settings, SEND_LIMIT_S)
        key = self._identity.worker
        try:
            sent = self._producer.send(Outgoing(self._topic, key, encode_worker_info(info), _HEADERS, 0))
        except KafkaProblem:
            self._drop_producer()
            raise
        self._written_status = status
        return sent.offset

    def _tidy(self) -> None:
        """Delete records of workers long gone: names made of host and process are never used again.

        One that is deleted too early, because it was frozen for a day, writes its record again by itself.
        """
        gone = long_gone(scan(self._settings, self._topic, [0]), int(self._keep_s * 1000))
        gone.discard(self._identity.worker.encode())
        if gone and self._producer is not None:
            most = sorted(gone)[:TIDY_MOST]
            self._producer.send_all(Outgoing(self._topic, key, None, partition=0) for key in most)
            self._log.info("records of workers long gone were deleted", workers=len(most))

    def _compare(self) -> None:
        """Say it when workers have other time data than others: two answers to when a slot is."""
        last = {record.key: record for record in scan(self._settings, self._topic, [0]) if record.key is not None}
        heard = []
        for record in last.values():
            try:
                if record.value is not None:
                    heard.append((decode_worker_info(record.value), record.at_ms))
            except BadRecord:
                continue  # of a later version; `fencepost workers` shows it
        different = different_time_data(heard)
        if different and different != self._different:
            self._log.warning("workers have different time data", releases=different)
        self._different = different

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def whereabouts(settings: Settings, topic: str, worker: str, incarnation: str) -> tuple[str, int] | None:
    """Host and process ID of this incarnation of a worker, as it said itself; None if its record is no longer there.

    Raises KafkaProblem, BadRecord.
    """
    found = None
    for record in scan(settings, topic, [0], stall_s=SEND_LIMIT_S):
        if record.key == worker.encode() and record.value is not None:
            info = decode_worker_info(record.value)
            found = (info.host, info.pid) if info.incarnation == incarnation else None
    return found


def long_gone(records: Iterable[Record], keep_ms: int) -> set[bytes]:
    """Keys whose last record was appended `keep_ms` or more before the last one of all: by the brokers' clock alone."""
    last: dict[bytes, Record] = {}
    now_ms = 0
    for record in records:
        now_ms = max(now_ms, record.at_ms)
        if record.key is not None:
            last[record.key] = record
    return {key for key, record in last.items() if record.value is not None and now_ms - record.at_ms >= keep_ms}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
