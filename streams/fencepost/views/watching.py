"""The process of `fencepost views`: follows the history and the states of tasks, and writes alerts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Iterator
from itertools import takewhile
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from fencepost.codec import BadRecord
from fencepost.core.ids import partition_of, split_key
from fencepost.kafka.namespace import load_namespace
from fencepost.kafka.positions import commit_start, committed_offsets
from fencepost.kafka.producer import Outgoing
from fencepost.kafka.scan import Record, scan
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.views.alarms import Alarms, Limits, Pending, take_state, take_work
from fencepost.views.intake import Handle, Intake
from fencepost.views.record import SourceRecord
from fencepost.views.sending import Sending
from fencepost.views.serve import serve
from fencepost.wire.alert import KINDS, Alert, decode_alert, encode_alert
from fencepost.wire.headers import ce_headers
from fencepost.wire.history import HistoryRecord, decode_history
from fencepost.wire.state import decode_state
from fencepost.wire.work import WORK, decode_work

LOOK_BACK_MS = 24 * 3_600_000  # how far back failures in a row are counted when a partition is taken over


def group_of(settings: Settings) -> str:
    """The consumer group of a namespace's views."""
    return f"{settings.namespace}-views"


def run(settings: Settings, limits: Limits, tick_s: float) -> int:
    """Until told to stop. Returns the exit code. Raises NotInitialised, KafkaProblem at the start."""
    topics, group = Topics(settings.namespace), group_of(settings)
    log = structlog.get_logger("fencepost.views").bind(group=group)
    load_namespace(settings)
    commit_start(settings, group, [topics.runs], from_beginning=False)
    watching = Watching(settings, limits, log, tick_s)
    try:
        return serve(settings, watching.reading, watching, watching.exposition, log)
    finally:
        watching.close()


class Watching:
    """Alarms for the partitions that this process reads."""

    def __init__(self, settings: Settings, limits: Limits, log: Any, tick_s: float) -> None:
        self.tick_s = tick_s
        self._settings, self._limits, self._log = settings, limits, log
        self._topics, self._group = Topics(settings.namespace), group_of(settings)
        self._sending = Sending(settings, log)
        self._lock = threading.Lock()  # events and ticks come from threads of a pool
        self._intake: Intake | None = None
        self._assignment = -1
        self._alarms: dict[int, Alarms] = {}
        self._pending: dict[int, dict[str, Pending]] = {}
        self._read_to: dict[int, int] = {}  # by partition of the states: the next offset
        self._tally: Tally[str] = Tally()
        self._registry = CollectorRegistry()
        self._events = Counter("fencepost_views_events", "Events of the history.", ["kind"], registry=self._registry)
        self._told = Counter("fencepost_views_alerts", "Alerts written.", ["kind", "status"], registry=self._registry)
        self._open = Gauge("fencepost_views_open_alerts", "Raised, not cleared.", ["kind"], registry=self._registry)

    def reading(self) -> Intake:
        """The member of the group, made in the event loop."""
        self._intake = Intake(self._settings, self._group, [self._topics.runs], self._log)
        return self._intake

    def handle(self) -> Handle:
        return self._handle

    async def _handle(self, records: list[SourceRecord]) -> AsyncIterator[list[SourceRecord]]:
        await asyncio.to_thread(self._take, records)
        yield records

    def _take(self, records: list[SourceRecord]) -> None:
        with self._lock:
            alerts = []
            for record in records:
                event = self._event(record)
                if event is not None:
                    self._events.labels(event.kind).inc()
                    alerts += self._alarms_of(record.partition).take(event)
            self._tally["records"] += len(records)
            self._tell(alerts)

    def tick(self) -> None:
        """What has not happened by now. States are read to their end first, so that nothing is judged by an old one."""
        with self._lock:
            if self._intake is None or not self._intake.ready:
                return
            numbers = [number for _, number in self._intake.partitions]
            self._read_states()
            now_ms = time.time_ns() // 1_000_000
            alerts = []
            for number in numbers:
                alarms, pending = self._alarms_of(number), self._pending.get(number, {})
                for task in {*pending, *(alert.task for alert in alarms.open())}:
                    alerts += alarms.look(task, pending.get(task, Pending()), now_ms)
            self._tell(alerts)
            open_ = Tally(alert.kind for number in numbers for alert in self._alarms_of(number).open())
            for kind in KINDS:
                self._open.labels(kind).set(open_[kind])

    def counts(self) -> dict[str, Any]:
        return {"records": self._tally["records"], "alerts": self._tally["alerts"]}

    def exposition(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def close(self) -> None:
        self._sending.close()

    # --- taking over -------------------------------------------------------------------------------------------------

    def _alarms_of(self, number: int) -> Alarms:
        """Begun anew after each assignment: events after the committed offset come again."""
        assert self._intake is not None
        if self._assignment != self._intake.assignments:
            self._assignment = self._intake.assignments
            self._alarms.clear()
        if number not in self._alarms:
            alarms = Alarms(self._limits)
            alarms.begin(self._history(number), self._alerts(number))
            self._alarms[number] = alarms
        return self._alarms[number]

    def _history(self, number: int) -> Iterator[HistoryRecord]:
        """A day's events, up to where the group stands."""
        topic = self._topics.runs
        end = committed_offsets(self._settings, self._group, topic, [number]).get(number, 0)
        since_ms = time.time_ns() // 1_000_000 - LOOK_BACK_MS
        with Tail(self._settings, topic, [number], since_ms) as tail:
            start = tail.starts()[number]
        records = takewhile(lambda record: record.offset < end, scan(self._settings, topic, [number], start))
        return (event for event in map(self._event, records) if event is not None)

    def _alerts(self, number: int) -> Iterator[Alert]:
        for record in scan(self._settings, self._topics.alerts, [number]):
            try:
                yield decode_alert(record.value or b"")
            except BadRecord as error:
                self._log.debug("an alert that cannot be read", offset=record.offset, why=str(error))

    def _event(self, record: Record | SourceRecord) -> HistoryRecord | None:
        value = record.raw_value if isinstance(record, SourceRecord) else record.value
        try:
            return decode_history(value or b"")
        except BadRecord as error:  # of a newer version
            self._log.debug("an event that cannot be read", offset=record.offset, why=str(error))
            return None

    def _read_states(self) -> None:
        for record in scan(self._settings, self._topics.state, None, dict(self._read_to)):
            self._read_to[record.partition] = record.offset + 1
            try:
                task, kind, seq = split_key(record.key_text)
                pending = self._pending.setdefault(record.partition, {})
                if task and kind is None:
                    take_state(pending, task, None if record.value is None else decode_state(record.value))
                elif task and kind == WORK:
                    take_work(pending, task, seq, None if record.value is None else decode_work(record.value))
            except ValueError as error:
                self._log.debug("a state that cannot be read", offset=record.offset, why=str(error))

    # --- telling -----------------------------------------------------------------------------------------------------

    def _tell(self, alerts: list[Alert]) -> None:
        if not alerts:
            return
        partitions = load_namespace(self._settings).partitions
        self._sending.send([_outgoing(alert, self._topics, partitions) for alert in alerts])
        for alert in alerts:
            self._told.labels(alert.kind, alert.status).inc()
            self._log.info(
                "alert", task=alert.task, kind=alert.kind, status=alert.status, about=alert.id, why=alert.text
            )
        self._tally["alerts"] += len(alerts)


def _outgoing(alert: Alert, topics: Topics, partitions: int) -> Outgoing:
    source = f"/fencepost/{topics.namespace}/views"
    event_id = f"{alert.id}:{alert.status}"
    headers = {name: raw.decode() for name, raw in ce_headers("alert", alert.task, source, event_id)}
    return Outgoing(
        topics.alerts, alert.task, encode_alert(alert), headers, partition_of(alert.task.encode(), partitions)
    )
