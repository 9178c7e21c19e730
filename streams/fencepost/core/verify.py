"""The check behind `fencepost verify`: what the topics alone say about the promise.

Fed with the state records of one partition and then with its history in order, it finds epochs that overlap, that were
started twice or ran backwards, runs without an end or an owner, state that history does not bear out, slots that ran
twice and slots that nobody accounts for. State goes in first: what is in it must be in the history read after it.

It keeps a few numbers per task and nothing of the history itself. What it cannot see is whether a process really died
when its run was recorded as ended: for that the tasks' own effects have to be looked at.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fencepost.core.commands import History
from fencepost.core.schedule import Schedule
from fencepost.core.task import Outcome, Status, TaskState
from fencepost.core.times import format_ms, parse_rfc3339

_ENDS = {outcome.value for outcome in Outcome}
_MAX_PENDING = 4096  # slots of one task seen out of order; beyond it the oldest gap is decided on
_MAX_LOST = 100  # of one task; more say nothing new


class Kind(StrEnum):
    """What was found. All but NOTE break the promise."""

    OVERLAP = "overlap"  # a run started before the one before it had ended
    TWICE = "twice"  # an epoch was started, or ended, twice
    BACKWARDS = "backwards"  # an epoch below one given out before
    NO_START = "no_start"  # a run ended that never started
    NO_OWNER = "no_owner"  # a run is on, and its partition was given up
    STATE = "state"  # state and history disagree
    SLOT_TWICE = "slot_twice"  # a slot became a second run although the first was not to be repeated
    SLOT_LOST = "slot_lost"  # a slot neither ran nor was skipped or missed
    NOTE = "note"  # worth a look, breaks nothing


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    task: str
    epoch: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What was looked at."""

    tasks: int = 0
    events: int = 0
    runs: int = 0
    running: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.tasks + other.tasks,
            self.events + other.events,
            self.runs + other.runs,
            self.running + other.running,
        )


@dataclass(slots=True)
class _Slots:
    """Slots of one task under its present schedule: all up to `edge` are accounted for, and those within `beyond`."""

    edge: int | None = None
    beyond: list[tuple[int, int]] = field(default_factory=list)  # sorted (first, last), both included
    lost: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Known:
    """What is remembered of one task."""

    state: TaskState | None = None
    first: int = 0  # the first epoch seen
    last: int = 0  # the last epoch started, as far as history goes
    open: int | None = None  # the epoch whose run is on
    ended: int = 0  # the last epoch that ended
    final_slot: int = -1  # the newest slot whose work is over
    slots: _Slots = field(default_factory=_Slots)


class PartitionCheck:
    """Checks one partition: `state` for each task, then `event` for each history record, then `finish`.

    complete: the history goes back to its beginning; otherwise a task may begin in the middle of a run.
    schedules: by task, of those whose slots are to be counted. waiting_slots: slots that wait for their run, by task.
    owner: (nonce, released) of the partition's last fence record; None if there was none.
    """

    def __init__(
        self,
        complete: bool,
        schedules: Mapping[str, Schedule] | None = None,
        waiting_slots: Mapping[str, Iterable[int]] | None = None,
        owner: tuple[str, bool] | None = None,
    ) -> None:
        self._complete = complete
        self._schedules = schedules or {}
        self._waiting = waiting_slots or {}
        self._owner = owner
        self._tasks: dict[str, _Known] = {}
        self._unreadable: set[str] = set()
        self._findings: list[Finding] = []
        self._events = 0
        self._runs = 0

    def state(self, state: TaskState) -> None:
        """The newest state record of a task."""
        self._tasks[state.task] = _Known(state=state)

    def unreadable(self, task: str) -> None:
        """The task has a state record that cannot be read: its history is checked, its state is not compared."""
        self._unreadable.add(task)

    def event(self, task: str, event: History) -> None:
        """The next history record of the partition."""
        self._events += 1
        known = self._tasks.get(task)
        if known is None:
            known = self._tasks[task] = _Known()
        if event.kind == "started":
            self._started(task, known, event)
        elif event.kind in _ENDS and "duration_s" in event.fields:  # without: work ended while no run was on
            self._ended(task, known, event)
        self._slot(task, known, event)

    def finish(self) -> tuple[list[Finding], Counts]:
        """All findings, in order, and what was looked at."""
        running = 0
        for task, known in self._tasks.items():
            running += known.state is not None and known.state.status is Status.RUNNING
            self._compare(task, known)
            self._close_slots(task, known)
        return self._findings, Counts(len(self._tasks), self._events, self._runs, running)

    def _find(self, kind: Kind, task: str, epoch: int | None, text: str) -> None:
        self._findings.append(Finding(kind, task, epoch, text))

    # --- runs --------------------------------------------------------------------------------------------------------

    def _started(self, task: str, known: _Known, event: History) -> None:
        epoch = event.epoch or 0
        self._runs += 1
        if known.open is not None and known.open != epoch:
            self._find(Kind.OVERLAP, task, epoch, f"epoch {epoch} started while epoch {known.open} had not ended")
        if epoch == known.last:
            self._find(Kind.TWICE, task, epoch, f"epoch {epoch} was started twice")
        elif epoch < known.last:
            self._find(Kind.BACKWARDS, task, epoch, f"epoch {epoch} was started after epoch {known.last}")
        elif known.last and epoch > known.last + 1:
            self._find(Kind.NOTE, task, epoch, f"epoch {epoch} follows {known.last}: none in between was started")
        known.first = known.first or epoch
        known.last = max(known.last, epoch)
        known.open = epoch

    def _ended(self, task: str, known: _Known, event: History) -> None:
        epoch = event.epoch or 0
        if known.open == epoch:
            known.open = None
        elif epoch <= known.ended and known.first:
            self._find(Kind.TWICE, task, epoch, f"epoch {epoch} ended twice ({event.kind})")
        elif self._complete or known.first:
            self._find(Kind.NO_START, task, epoch, f"epoch {epoch} ended ({event.kind}) but never started")
        known.first = known.first or epoch
        known.last = max(known.last, epoch)
        known.ended = max(known.ended, epoch)

    def _compare(self, task: str, known: _Known) -> None:
        """The state record was read before the history, so history may be ahead, never behind."""
        state = known.state
        if task in self._unreadable:
            return
        if state is None:
            if known.last:
                self._find(Kind.STATE, task, known.last, "history tells of runs, but there is no state record")
            return
        # Without history of this task the epoch may be from before what is kept, or from the partition's floor.
        if known.last and known.last < state.epoch:
            text = f"state is at epoch {state.epoch}, history ends at {known.last}"
            self._find(Kind.STATE, task, state.epoch, text)
        if state.status is Status.RUNNING:
            self._check_running(task, state, known)
        elif known.open is not None and known.open == state.epoch:
            text = f"history has epoch {known.open} still running, state says {state.status.value}"
            self._find(Kind.STATE, task, known.open, text)

    def _check_running(self, task: str, state: TaskState, known: _Known) -> None:
        run = state.run
        if run is None or run.epoch != state.epoch:
            self._find(Kind.STATE, task, state.epoch, "state says running, and names no run of its epoch")
            return
        moved_on = known.last > run.epoch or known.ended >= run.epoch
        if not moved_on and known.open is None and self._complete:
            self._find(Kind.STATE, task, run.epoch, f"state says epoch {run.epoch} runs, history never started it")
        if moved_on or self._owner is None:
            return
        nonce, released = self._owner
        if released:
            self._find(Kind.NO_OWNER, task, run.epoch, f"epoch {run.epoch} runs, but its partition was released")
        elif run.nonce != nonce:
            text = f"epoch {run.epoch} was begun by an earlier owner ({run.lane}); its lease is being waited out"
            self._find(Kind.NOTE, task, run.epoch, text)

    # --- slots -------------------------------------------------------------------------------------------------------

    def _slot(self, task: str, known: _Known, event: History) -> None:
        if event.kind == "defined" or event.kind == "deleted":
            # What was counted so far belongs to another schedule.
            known.slots = _Slots()
            return
        if event.kind == "missed":
            first, last = _ms(event.fields, "first"), _ms(event.fields, "last")
            if first is not None and last is not None:
                self._account(task, known.slots, first, last)
            return
        slot = _ms(event.fields, "slot")
        if slot is None:
            return
        self._account(task, known.slots, slot, slot)
        if event.kind == "started" and slot <= known.final_slot:
            text = f"slot {format_ms(slot)} became a run again, though its work was over"
            self._find(Kind.SLOT_TWICE, task, event.epoch, text)
        if event.kind in _ENDS and "retry_at" not in event.fields:
            known.final_slot = max(slot, known.final_slot)

    def _account(self, task: str, slots: _Slots, first: int, last: int) -> None:
        schedule = self._schedules.get(task)
        if schedule is None:
            return
        if slots.edge is None:
            slots.edge = last
        elif last > slots.edge:
            insort(slots.beyond, (first, last))
            _advance(slots, schedule)

    def _close_slots(self, task: str, known: _Known) -> None:
        slots, schedule = known.slots, self._schedules.get(task)
        if schedule is None:
            return
        for slot in self._waiting.get(task, ()):
            self._account(task, slots, slot, slot)
        _advance(slots, schedule, limit=0)
        for slot in slots.lost:
            self._find(Kind.SLOT_LOST, task, None, f"slot {format_ms(slot)} neither ran nor was skipped or missed")


def _advance(slots: _Slots, schedule: Schedule, limit: int = _MAX_PENDING) -> None:
    """Move the edge over what follows it. More than `limit` slots beyond a gap decide that what is missing is lost."""
    while slots.beyond and slots.edge is not None:
        first, last = slots.beyond[0]
        following = schedule.next_after(slots.edge)
        if following is None or first <= following:
            # Before the next slot by the schedule: one of a zone's rule that has changed since.
            slots.edge = max(slots.edge, last)
            slots.beyond.pop(0)
        elif len(slots.beyond) > limit:
            slots.lost.append(following)
            slots.edge = following if len(slots.lost) < _MAX_LOST else first - 1
        else:
            return


def _ms(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return parse_rfc3339(value) if isinstance(value, str) else None
