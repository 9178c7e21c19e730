"""Slots: each became a run, was skipped or missed, or waits; and none became a run twice."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

from fencepost.core.backfills import BACKFILL
from fencepost.core.commands import History
from fencepost.core.making import of_schedule
from fencepost.core.schedule import Schedule, ScheduleError, schedule_from_json
from fencepost.core.slots import fingerprint_of
from fencepost.core.task import Outcome
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.core.verify.finding import Findings, Kind
from fencepost.core.verify.known import Era, Known, ScheduleItems

MAX_BEYOND: Final = 4096  # slots of one task seen out of order; beyond it the oldest gap is decided on
MAX_MISSING: Final = 100  # of one task; more say nothing new
_NO_EVENT: Final = -1
ENDS: Final = frozenset(outcome.value for outcome in Outcome)


class Slots:
    """The rules for slots, over the `Known` of whichever task an event is of.

    declared: schedules that an app declares in code, by task. Where history tells of a schedule (`defined`), that one
    counts from there on; before, the present one does, if the state says that it is in force. since_ms: when the
    history begins that is not complete; slots up to then may be of a schedule that it does not tell of.
    """

    def __init__(self, findings: Findings, declared: Mapping[str, Schedule]) -> None:
        self._findings = findings
        self._declared = declared
        self.since_ms = -1

    def event(self, task: str, known: Known, event: History, at: int, promised: bool) -> None:
        """The next event of the task. `promised`: a run that the end of the one before it announced."""
        kind, fields = event.kind, event.fields
        if kind == "defined" or kind == "deleted":
            self._new_era(task, known, kind, fields, at)
            return
        if kind == "missed":
            first_ms, last_ms = time_of(fields, "first"), time_of(fields, "last")
            if first_ms is not None and last_ms is not None:
                self._account(task, known, first_ms, last_ms, at)
            return
        if kind == "triggered" and "first" in fields and is_backfill_of(fields.get("asked_by")):
            known.backfilled = None  # another one, which may have the name of one before
        over = kind in ENDS and "retry_at" not in fields
        for request in (fields, *fields.get("batch", ())):
            slot_ms = time_of(request, "slot")
            # A slot that is run by another ID or by shards begins when it is given to them.
            if slot_ms is not None and kind in ("started", "fanned_out") and not promised:
                self._backfilled(task, known, event.epoch, request, slot_ms, at)
            if slot_ms is None or not of_schedule(request.get("asked_by")):
                continue  # no slot, or one that somebody asked for beside the schedule: it may run as often as that
            self._request(task, known, event, slot_ms, at, promised, over)

    def _request(
        self, task: str, known: Known, event: History, slot_ms: int, at: int, promised: bool, over: bool
    ) -> None:
        """An event of a request for a slot. `over`: it is the last one."""
        kind = event.kind
        waited = known.pending.pop(slot_ms, None) is not None
        if kind == "triggered":
            known.pending[slot_ms] = at
        elif kind == "started" and not waited and not promised:
            self._started(task, known, event.epoch, slot_ms, at)
        self._account(task, known, slot_ms, slot_ms, at)
        if over and slot_ms > known.final_slot_ms:
            known.final_slot_ms, known.final_slot_at = slot_ms, at

    def close(self, task: str, known: Known) -> None:
        """At the end of the history: what the state still holds is no loss; what it had decided on must be there."""
        said = known.stated
        waiting = set(known.waiting.values())
        if said is not None and said.work_slot_ms is not None:
            waiting.add(said.work_slot_ms)
        for slot_ms in sorted(waiting):
            self._account(task, known, slot_ms, slot_ms, _NO_EVENT)
        if said is not None and said.catching is not None:
            self._account(task, known, *said.catching, _NO_EVENT)
        self._close_era(task, known)
        if said is not None and known.problem is None:
            self._decided(task, known, said.last_slot_ms, said.fingerprint, said.at)
            for slot_ms, at in known.pending.items():
                if slot_ms <= said.last_slot_ms and slot_ms not in waiting:
                    text = f"slot {format_ms(slot_ms)} had to wait, and neither ran nor waits any more"
                    self._findings.add(Kind.SLOT_LOST, task, None, text, (at,), (said.at,))
        for slot_ms, (before, after) in sorted(known.missing.items()):
            text = f"slot {format_ms(slot_ms)} neither ran nor was skipped or missed"
            self._findings.add(Kind.SLOT_LOST, task, None, text, (before, after))

    # --- one slot ----------------------------------------------------------------------------------------------------

    def _started(self, task: str, known: Known, epoch: int | None, slot_ms: int, at: int) -> None:
        """A run for a slot that neither waited nor was to be repeated."""
        if slot_ms <= known.final_slot_ms and self._accounted(task, known, slot_ms):
            text = f"slot {format_ms(slot_ms)} became a run again, though its work was over"
            self._findings.add(Kind.SLOT_TWICE, task, epoch, text, (known.final_slot_at, at))

    def _backfilled(
        self, task: str, known: Known, epoch: int | None, request: Mapping[str, Any], slot_ms: int, at: int
    ) -> None:
        """A backfill runs each slot once, in their order.

        An ID that gets them by triggers does not hear of another backfill of the same name. There the same trigger must
        not run again; that no slot is given away twice, the history of the task says.
        """
        asked_by, offset = request.get("asked_by"), request.get("offset", _NO_EVENT)
        if not is_backfill_of(asked_by):
            return
        before = known.backfilled
        if before is not None and before[0] == asked_by and slot_ms <= before[1] and offset <= before[3]:
            text = f"slot {format_ms(slot_ms)} became a run of {asked_by} again"
            self._findings.add(Kind.SLOT_TWICE, task, epoch, text, (before[2], at))
        known.backfilled = (asked_by, slot_ms, at, offset)

    def _accounted(self, task: str, known: Known, slot_ms: int) -> bool:
        era = known.era
        if self._schedule(task, known) is None or era.edge_ms is None:
            return True  # nothing better is known than that a newer one was over
        if slot_ms <= era.edge_ms:
            return slot_ms not in known.missing
        return any(first <= slot_ms <= last for first, last, _ in era.beyond)

    def _account(self, task: str, known: Known, first_ms: int, last_ms: int, at: int) -> None:
        if known.missing:
            for slot_ms in [slot for slot in known.missing if first_ms <= slot <= last_ms]:
                del known.missing[slot_ms]
        era, schedule = known.era, self._schedule(task, known)
        if schedule is None:
            return
        if era.edge_ms is None:
            if at >= 0 and last_ms > self.since_ms:
                era.edge_ms, era.edge_at = last_ms, at
        elif last_ms > era.edge_ms:
            insort(era.beyond, (first_ms, last_ms, at))
            _advance(known, schedule, MAX_BEYOND)

    # --- schedules ---------------------------------------------------------------------------------------------------

    def _schedule(self, task: str, known: Known) -> Schedule | None:
        """The schedule that slots are counted by now."""
        era = known.era
        if era.schedule is None and era.assumed:
            era.schedule = self._present(task, known)
            era.assumed = era.schedule is not None
        return None if era.schedule is None else _schedule_of(era.schedule, task)

    def _present(self, task: str, known: Known) -> ScheduleItems | None:
        items = known.schedule
        if items is None:
            declared = self._declared.get(task)
            items = None if declared is None else items_of(declared)
        schedule = None if items is None else _schedule_of(items, task)
        if schedule is None or known.stated is None or known.stated.fingerprint != fingerprint_of(schedule):
            return None  # its owner has not taken it yet
        return items

    def _new_era(self, task: str, known: Known, kind: str, fields: Mapping[str, Any], at: int) -> None:
        if kind == "defined" and "schedule" not in fields:
            return  # another definition with the same schedule: its slots go on
        if known.era.assumed:
            known.missing.clear()  # what was counted belongs to a schedule that nobody knows any more
        else:
            self._close_era(task, known)
        told = fields.get("schedule")
        items = frozen(told) if isinstance(told, Mapping | list) else None
        known.era = Era(items, False, time_of(fields, "slots_after"), at)

    def _close_era(self, task: str, known: Known) -> None:
        schedule = None if known.era.schedule is None else _schedule_of(known.era.schedule, task)
        if schedule is not None:
            _advance(known, schedule, 0)

    def _decided(self, task: str, known: Known, until_ms: int, fingerprint: str | None, at: int) -> None:
        """Slots up to `until_ms` were decided on, says the state: history, read later, must have them."""
        era = known.era
        schedule = None if era.schedule is None else _schedule_of(era.schedule, task)
        if schedule is None or era.edge_ms is None or fingerprint != fingerprint_of(schedule):
            return
        following = schedule.next_after(era.edge_ms)
        while following is not None and following <= until_ms and len(known.missing) < MAX_MISSING:
            known.missing[following] = (era.edge_at, -1)
            following = schedule.next_after(following)


def _advance(known: Known, schedule: Schedule, limit: int) -> None:
    """Move the edge over what follows it. More than `limit` slots beyond a gap decide that what is missing is lost."""
    era = known.era
    while era.beyond and era.edge_ms is not None:
        first_ms, last_ms, at = era.beyond[0]
        following = schedule.next_after(era.edge_ms)
        if following is None or first_ms <= following:
            # Before the next slot by the schedule: one of a zone's rule that has changed since.
            if last_ms >= era.edge_ms:
                era.edge_ms, era.edge_at = last_ms, at
            era.beyond.pop(0)
        elif len(era.beyond) > limit:
            if len(known.missing) < MAX_MISSING:
                known.missing[following] = (era.edge_at, at)
                era.edge_ms = following
            else:
                era.edge_ms = first_ms - 1
        else:
            return


def is_backfill_of(asked_by: object) -> TypeGuard[str]:
    return isinstance(asked_by, str) and asked_by.startswith(f"{BACKFILL} ")


def items_of(schedule: Schedule) -> ScheduleItems:
    """The schedule's JSON object as a value that can be looked up, and written to disk."""
    items: ScheduleItems = frozen(schedule.to_json())
    return items


def frozen(value: Any) -> Any:
    """A JSON value as one that can be looked up; objects and lists say which they are."""
    if isinstance(value, Mapping):
        return ("object", *sorted((name, frozen(item)) for name, item in value.items()))
    return ("list", *map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    kind, *items = value
    return {name: thawed(item) for name, item in items} if kind == "object" else [thawed(item) for item in items]


def _schedule_of(items: ScheduleItems, task: str) -> Schedule | None:
    """The schedule of the task with this ID. None: of a kind that this version does not know."""
    schedule = _known_schedule(items)
    return schedule if schedule is None or not schedule.needs_task else _chosen_schedule(items, task)


@lru_cache(maxsize=4096)
def _chosen_schedule(items: ScheduleItems, task: str) -> Schedule | None:
    schedule = _known_schedule(items)
    try:
        return None if schedule is None else schedule.for_task(task)
    except ScheduleError:
        return None


@lru_cache(maxsize=1024)
def _known_schedule(items: ScheduleItems) -> Schedule | None:
    try:
        return schedule_from_json(thawed(items))
    except ScheduleError:
        return None


def time_of(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return parse_rfc3339(value) if isinstance(value, str) else None
