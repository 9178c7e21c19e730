"""`fencepost verify`: reads the topics, one partition after the other, and feeds the check in `core.verify`.

Of each partition the log of owners is read, the definitions, the state, then the history up to where it ended once the
state was read, and the owners again. Memory does not grow with the namespace: see `core.verify` and `audit.spill`; what
does not fit goes to a temporary file, a few hundred bytes for each task of one partition.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fencepost.audit.spill import Spill
from fencepost.codec import BadRecord
from fencepost.core.commands import History
from fencepost.core.ids import SEPARATOR, check_task_id, partition_of, side_key, split_key
from fencepost.core.making import of_schedule
from fencepost.core.schedule import Schedule
from fencepost.core.task import Definition
from fencepost.core.verify import Counts, Fence, Fences, Finding, Kind, PartitionCheck, Stamp
from fencepost.kafka.bounds import Bounds
from fencepost.kafka.namespace import KEY, load_namespace
from fencepost.kafka.reader import Place as Log
from fencepost.kafka.scan import EARLIEST, Record, scan
from fencepost.kafka.tail import Tail
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.definition import read_definition
from fencepost.wire.history import decode_history
from fencepost.wire.owners import decode_fence, decode_renewal
from fencepost.wire.state import decode_state, state_stamp
from fencepost.wire.work import WORK, decode_work

MAX_UNREADABLE = 100  # lines; what goes beyond is counted
_TIMEOUT_S = 15.0
_SETTLE_LIMIT_S = 30.0  # longer than a transaction may stay open with any profile
_HEARD_FRESH_MS = 30_000
_HEARD_OLDEST_MS = 24 * 3_600_000
_STEP = 500  # records between two looks at the progress bar
_FENCE_KEY = side_key("", "fence", 0).encode()
_OWN_PREFIX = SEPARATOR.encode()

Progress = Callable[[int, int], None]  # how many offsets were passed, of how many


@dataclass(slots=True)
class Verdict:
    """What all partitions said. `notes` break nothing; `more`: findings beyond what is kept of a partition, by kind.

    complete: the history was read from its very beginning. Places of findings have the full names of topics.
    """

    counts: Counts = field(default_factory=Counts)
    violations: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    more: Counter[Kind] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)
    unreadable_more: int = 0
    complete: bool = True

    @property
    def holds(self) -> bool:
        return not self.violations

    def cannot_read(self, line: str) -> None:
        if len(self.unreadable) < MAX_UNREADABLE:
            self.unreadable.append(line)
        else:
            self.unreadable_more += 1


def check(
    settings: Settings,
    *,
    task: str | None = None,
    since_ms: int | None = None,
    definitions: Iterable[Definition] = (),
    progress: Progress | None = None,
) -> Verdict:
    """The whole namespace, or one task; of the history what was appended from `since_ms` on.

    definitions: what an app declares in code. Raises KafkaProblem, BadRecord for an ID that cannot be.
    """
    info = load_namespace(settings)
    numbers = list(range(info.partitions))
    if task is not None:
        try:
            numbers = [partition_of(check_task_id(task).encode(), info.partitions)]
        except ValueError as error:
            raise BadRecord(str(error), "task") from error
    schedules = {item.task: item.schedule for item in definitions if item.schedule is not None}
    return _Audit(settings, numbers, schedules, task, since_ms, progress).run()


class _Audit:
    """One check of a namespace."""

    def __init__(
        self,
        settings: Settings,
        numbers: list[int],
        schedules: Mapping[str, Schedule],
        task: str | None,
        since_ms: int | None,
        progress: Progress | None,
    ) -> None:
        self._settings = settings
        self._topics = Topics(settings.namespace)
        self._numbers = numbers
        self._schedules = schedules
        self._task = task
        self._bounds = Bounds(settings, 0)
        self._verdict = Verdict()
        self._progress = progress or (lambda _done, _of: None)
        self._begins: dict[Log, int] = {}
        self._ends: dict[Log, int] = {}
        self._passed = 0  # offsets of logs that were read to their end
        self._starts = self._start_at(since_ms)
        self._heard: tuple[int, dict[str, int]] = (0, {})

    def run(self) -> Verdict:
        topics = self._topics
        logs = [(name, number) for number in self._numbers for name in (topics.tasks, topics.state, topics.runs)]
        self._begins = self._bounds.begins(logs, _TIMEOUT_S)
        self._ends = self._bounds.ends(logs, _TIMEOUT_S)
        self._begins |= {log: start for log, start in self._starts.items() if start > self._begins[log]}
        for number in self._numbers:
            with Spill() as store:
                self._check(number, store)
        self._progress(self._passed, self._passed)
        return self._verdict

    def _check(self, number: int, store: Spill) -> None:
        topics, log = self._topics, (self._topics.runs, number)
        complete = self._starts.get(log, 0) == 0 and self._begins[log] == 0
        checker = PartitionCheck(
            complete, self._schedules, number=number, fences=self._fences(number, tell=True), store=store
        )
        for record in self._read(topics.tasks, number):
            self._definition(checker, record)
        for record in self._read(topics.state, number):
            self._state(checker, record)
        end, settled = self._settled_end(log)
        checker.fences_by_now(self._fences(number, tell=False))
        for record in self._read(topics.runs, number, self._begins[log]):
            if record.offset >= end:
                break  # later than what is known of the owners
            self._event(checker, record)
        heard, read_ms = self._lanes_heard() if checker.any_running else ({}, 0)
        findings, counts = checker.finish(heard, read_ms) if checker.any_running else checker.finish()
        self._add(findings, counts, settled)
        self._verdict.more.update(checker.more)
        self._verdict.complete = self._verdict.complete and complete
        for task, why in checker.problems():
            self._verdict.cannot_read(f"{task}: {why}")

    def _add(self, findings: list[Finding], counts: Counts, settled: bool) -> None:
        verdict = self._verdict
        verdict.counts += counts
        for finding in findings:
            places = tuple(
                replace(place, topic=f"{self._settings.namespace}.{place.topic}") for place in finding.places
            )
            found = replace(finding, places=places)
            behind = not settled and any(place.topic == self._topics.state for place in places)
            if found.kind is Kind.NOTE or behind:
                verdict.notes.append(replace(found, kind=Kind.NOTE))
            else:
                verdict.violations.append(found)

    # --- records -----------------------------------------------------------------------------------------------------

    def _definition(self, checker: PartitionCheck, record: Record) -> None:
        if not self._wanted(record.key_text):
            return
        try:
            task, definition = read_definition(record.key, record.value)
        except BadRecord as error:
            checker.bad_definition(record.key_text, str(error))
            return
        checker.defined(task, None if definition is None else definition.schedule)

    def _state(self, checker: PartitionCheck, record: Record) -> None:
        key, value = record.key or b"", record.value
        if key.startswith(_OWN_PREFIX) or not key:
            if key == _FENCE_KEY and value is not None:
                self._state_fence(checker, record, value)
            return
        task = record.key_text.split(SEPARATOR)[0]
        if not self._wanted(task):
            return
        try:
            _, kind, seq = split_key(record.key_text)
            if kind is None and value is None:
                checker.state_gone(task)
            elif kind is None:
                state = decode_state(value or b"")
                checker.state(state, record.offset, Stamp(*state_stamp(value or b"")))
            elif value is None:
                if kind == WORK:
                    checker.waits(task, seq, None)
            elif kind == WORK:
                work = decode_work(value)
                slot_ms = work.slot_ms if of_schedule(work.asked_by) else None  # else it is no turn of the schedule
                checker.waits(task, seq, slot_ms, record.offset, Stamp(*state_stamp(value)))
            else:
                checker.stamped(task, Stamp(*state_stamp(value)), record.offset)
        except (BadRecord, ValueError) as error:
            checker.unreadable(task, f"{_place(record)}: {error}")

    def _state_fence(self, checker: PartitionCheck, record: Record, value: bytes) -> None:
        try:
            fence = decode_fence(value)
        except BadRecord as error:
            self._verdict.cannot_read(f"{_place(record)}: {error}")
            return
        checker.state_fence(Stamp(fence.lane, fence.nonce), record.offset)

    def _event(self, checker: PartitionCheck, record: Record) -> None:
        if record.value is None or not self._wanted(record.key_text):
            return
        try:
            event = decode_history(record.value)
        except BadRecord as error:
            self._verdict.cannot_read(f"{_place(record)}: {error}")
            return
        history = History(event.kind, event.epoch, event.at_ms, event.fields)
        checker.event(event.task, history, record.offset, Stamp(event.lane, event.nonce))

    def _wanted(self, task: str) -> bool:
        return self._task is None or task == self._task

    # --- owners ------------------------------------------------------------------------------------------------------

    def _fences(self, number: int, *, tell: bool) -> Fences:
        """The partition's fences, in order. `tell`: say what cannot be read; the second look finds the same again."""
        found: list[Fence] = []
        whole, next_offset = True, 0
        for record in scan(self._settings, self._topics.owners, [number]):
            if not found:
                whole = whole and record.offset == next_offset  # a gap: compaction may have taken a fence away
                next_offset = record.offset + 1
            if record.key != str(number).encode() or record.value is None:
                continue
            try:
                fence = decode_fence(record.value)
            except BadRecord as error:
                whole = False
                if tell:
                    self._verdict.cannot_read(f"{_place(record)}: {error}")
                continue
            found.append(Fence(fence.lane, fence.nonce, record.offset, record.at_ms, fence.released))
        return Fences(found, whole)

    def _lanes_heard(self) -> tuple[dict[str, int], int]:
        """(when each lane last renewed a lease, when that was read); lanes that are silent for a day are left out."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms - self._heard[0] > _HEARD_FRESH_MS:
            heard: dict[str, int] = {}
            for record in scan(self._settings, self._topics.owners):
                key = record.key_text
                young = now_ms - record.at_ms < _HEARD_OLDEST_MS
                if record.value is None or record.key == KEY or key.isdecimal() or not key.isprintable() or not young:
                    continue
                try:
                    lane = decode_renewal(record.value).lane
                except BadRecord:
                    continue  # it shows nobody alive; what cannot be read of a fence is said
                heard[lane] = max(heard.get(lane, 0), record.at_ms)
            self._heard = (now_ms, heard)
        return self._heard[1], self._heard[0]

    # --- logs --------------------------------------------------------------------------------------------------------

    def _read(self, topic: str, number: int, start: int = EARLIEST) -> Iterator[Record]:
        """The records, while the progress is told."""
        log = (topic, number)
        begin, planned = self._begins[log], self._ends[log] - self._begins[log]
        total = sum(self._ends[each] - self._begins[each] for each in self._ends)
        try:
            for count, record in enumerate(scan(self._settings, topic, [number], start)):
                yield record
                if count % _STEP == 0:
                    self._progress(self._passed + min(planned, record.offset - begin), total)
        finally:
            self._passed += planned
        self._progress(self._passed, total)

    def _settled_end(self, log: Log) -> tuple[int, bool]:
        """(where the log ends now, whether all up to there is decided).

        A transaction's partitions become readable one after the other, so that what was read in the state may not be
        readable in the history for a moment.
        """
        target = self._bounds.ends([log], _TIMEOUT_S)[log]
        until_s = time.monotonic() + _SETTLE_LIMIT_S
        while True:
            end = self._bounds.ends([log], _TIMEOUT_S, committed_only=True)[log]
            if end >= target:
                return end, True
            if time.monotonic() > until_s:
                self._verdict.cannot_read(f"{log[0]}/{log[1]}/{end}: an open transaction hides what follows")
                return end, False
            time.sleep(0.05)

    def _start_at(self, since_ms: int | None) -> dict[Log, int]:
        if since_ms is None:
            return {}
        with Tail(self._settings, self._topics.runs, self._numbers, since_ms) as tail:
            return {(self._topics.runs, number): start for number, start in tail.starts().items()}


def _place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"
