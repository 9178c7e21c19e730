"""What alerts the history and the states of tasks call for. Pure: events, states and the time in, alerts out.

What happened (failures, misses, a start that came late) is told by the history. What has not happened (a slot that
nobody fires, a run without an end, work that nobody starts) leaves no event: it is seen in the states, whose times have
passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from fencepost.core.task import Outcome, Status, TaskState, Work
from fencepost.core.times import format_ms, parse_rfc3339
from fencepost.wire.alert import CLEARED, ONCE, RAISED, Alert
from fencepost.wire.history import HistoryRecord

_FAILURES = (Outcome.FAILED.value, Outcome.TIMED_OUT.value)
_ENDS = {outcome.value for outcome in Outcome}
_ERROR_CHARS = 300
TOLD_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """When something is worth an alert. failures: in a row. Durations in seconds."""

    failures: int = 3
    late_s: float = 60.0
    stuck_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Pending:
    """What a task's state says of what is to come, and what waits: by sequence number when it was due."""

    state: TaskState | None = None
    due_ms: dict[int, int] = field(default_factory=dict)


class Alarms:
    """Those of one partition's tasks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._failures: dict[str, int] = {}
        self._open: dict[str, dict[str, Alert]] = {}  # by task and ID: raised, and not cleared
        self._told: dict[tuple[str, str], None] = {}  # the newest so many, in the order in which they were told

    def begin(self, history: Iterable[HistoryRecord], told: Iterable[Alert]) -> None:
        """Take over from another: what happened, of which the alerts were told already, and those alerts in order."""
        for event in history:
            self.take(event)
        self._open.clear()
        self._told.clear()
        for alert in told:
            self._note(alert)

    def open(self) -> list[Alert]:
        """Those that were raised and not cleared."""
        return [alert for alerts in self._open.values() for alert in alerts.values()]

    # --- what happened -----------------------------------------------------------------------------------------------

    def take(self, event: HistoryRecord) -> list[Alert]:
        """The alerts that an event of the history calls for, and those that it clears."""
        task, kind = event.task, event.kind
        if kind == "started":
            return [*self._late_start(event), *self._clear(task, event.at_ms, "stuck", "it started")]
        if kind == "missed":
            return self._missed(event)
        if kind in ("deleted", "forgotten"):
            self._failures.pop(task, None)
            return [found for of in ("failing", "late", "stuck") for found in self._clear(task, event.at_ms, of, kind)]
        if kind == "gathered":  # a request that ran in shards has ended
            return self._gathered(event)
        if kind not in _ENDS:
            return []
        found = list(self._clear(task, event.at_ms, "stuck", kind)) if event.epoch is not None else []
        if kind in _FAILURES:
            return found + self._failed(event)
        if kind == Outcome.SUCCEEDED.value:
            self._failures.pop(task, None)
            found += self._clear(task, event.at_ms, "failing", "it succeeded")
        return found

    def _gathered(self, event: HistoryRecord) -> list[Alert]:
        outcome = event.fields.get("outcome")
        if outcome == Outcome.SUCCEEDED.value:
            self._failures.pop(event.task, None)
            return self._clear(event.task, event.at_ms, "failing", "it succeeded")
        if outcome != Outcome.FAILED.value:
            return []
        why = event.fields.get("error") or f"shards {event.fields.get('failed_shards')} did not succeed"
        return self._failed(event, str(why), format_ms(event.at_ms))

    def _failed(self, event: HistoryRecord, why: str | None = None, about: str | None = None) -> list[Alert]:
        """about: names the matter where no epoch does."""
        count = self._failures[event.task] = self._failures.get(event.task, 0) + 1
        if count < self._limits.failures or any(self._open_of(event.task, "failing")):
            return []
        why = (why or str(event.fields.get("error") or event.kind))[:_ERROR_CHARS]
        text = f"{count} failures in a row, the last: {why}"
        about = f"failing:{about or event.epoch}"
        return self._tell(Alert(about, event.task, "failing", RAISED, event.at_ms, text, event.epoch, None, count))

    def _missed(self, event: HistoryRecord) -> list[Alert]:
        if event.fields.get("cause") == "paused":
            return []  # somebody wanted it
        first, last = event.fields.get("first"), event.fields.get("last")
        count = event.fields.get("count") or event.fields.get("count_at_least")
        text = f"{count} slots from {first} to {last}: {event.fields.get('cause')}"
        slot_ms = None if first is None else parse_rfc3339(first)
        return self._tell(Alert(f"missed:{first}", event.task, "missed", ONCE, event.at_ms, text, None, slot_ms, count))

    def _late_start(self, event: HistoryRecord) -> list[Alert]:
        slot = event.fields.get("slot")
        about = f"late:{slot or event.epoch}"
        found = []
        waited_s = float(event.fields.get("waited_s") or 0.0)
        first_attempt = event.fields.get("attempt", 1) <= 1
        if first_attempt and waited_s >= self._limits.late_s and (event.task, about) not in self._told:
            slot_ms = None if slot is None else parse_rfc3339(slot)
            text = f"started {waited_s:.1f} s after it was due"
            found += self._tell(
                Alert(about, event.task, "late", RAISED, event.at_ms, text, event.epoch, slot_ms)
            )  # fmt: skip
        return [*found, *self._clear(event.task, event.at_ms, "late", f"epoch {event.epoch} started")]

    # --- what has not happened ---------------------------------------------------------------------------------------

    def look(self, task: str, pending: Pending, now_ms: int) -> list[Alert]:
        """The alerts for what should have happened to the task by now; and those that no longer hold are cleared."""
        state = pending.state or TaskState(task)
        found = self._over(task, state, pending, now_ms)
        if state.deleted:
            return found
        if state.run is not None and now_ms - state.run.started_ms >= self._limits.stuck_s * 1000:
            seconds = (now_ms - state.run.started_ms) / 1000
            text = f"epoch {state.run.epoch} has been running for {seconds:.0f} s on {state.run.lane}"
            about = f"stuck:{state.run.epoch}"
            found += self._tell(Alert(about, task, "stuck", RAISED, now_ms, text, state.run.epoch))
        if state.paused:
            return found
        slot_ms = state.next_slot_ms
        if slot_ms is not None and now_ms - slot_ms >= self._limits.late_s * 1000:
            slot = format_ms(slot_ms)
            text = f"the slot {slot} was due {(now_ms - slot_ms) / 1000:.0f} s ago, and nobody has decided on it"
            found += self._tell(Alert(f"late:{slot}", task, "late", RAISED, now_ms, text, None, slot_ms))
        return found + self._not_started(task, state, pending, now_ms)

    def _over(self, task: str, state: TaskState, pending: Pending, now_ms: int) -> list[Alert]:
        """Cleared: what was raised here and is over without an event that says so."""
        still = {f"stuck:work:{seq}" for seq in pending.due_ms}
        if state.run is not None:
            still.add(f"stuck:{state.run.epoch}")
        if state.next_slot_ms is not None:
            still.add(f"late:{format_ms(state.next_slot_ms)}")
        over = [each for each in self._open.get(task, {}).values() if each.kind in ("late", "stuck")]
        return [self._cleared(alert, now_ms, "it is over") for alert in over if state.deleted or alert.id not in still]

    def _not_started(self, task: str, state: TaskState, pending: Pending, now_ms: int) -> list[Alert]:
        """Work that waits though nothing of the task runs: no worker has its handler, or none has room."""
        if state.status is not Status.IDLE or not pending.due_ms:
            return []
        seq, due_ms = min(pending.due_ms.items(), key=lambda item: item[1])
        if now_ms - max(due_ms, state.not_before_ms) < self._limits.stuck_s * 1000:
            return []
        text = (
            f"a request has been due for {(now_ms - due_ms) / 1000:.0f} s and nothing starts it: "
            "no worker has its handler, or none has room"
        )
        return self._tell(Alert(f"stuck:work:{seq}", task, "stuck", RAISED, now_ms, text))

    # --- telling each once -------------------------------------------------------------------------------------------

    def _tell(self, alert: Alert) -> list[Alert]:
        if (alert.task, alert.id) in self._told:
            return []
        self._note(alert)
        return [alert]

    def _note(self, alert: Alert) -> None:
        if alert.status == RAISED:
            self._open.setdefault(alert.task, {})[alert.id] = alert
        elif alert.task in self._open:
            self._open[alert.task].pop(alert.id, None)
            if not self._open[alert.task]:
                del self._open[alert.task]
        self._told.pop((alert.task, alert.id), None)
        self._told[alert.task, alert.id] = None
        if len(self._told) > TOLD_LIMIT:
            del self._told[next(iter(self._told))]

    def _open_of(self, task: str, kind: str) -> Iterator[Alert]:
        return (alert for alert in self._open.get(task, {}).values() if alert.kind == kind)

    def _clear(self, task: str, at_ms: int, kind: str, text: str) -> list[Alert]:
        return [self._cleared(alert, at_ms, text) for alert in list(self._open_of(task, kind))]

    def _cleared(self, alert: Alert, at_ms: int, text: str) -> Alert:
        cleared = replace(alert, status=CLEARED, at_ms=at_ms, text=text)
        self._note(cleared)
        return cleared


def take_state(pending: dict[str, Pending], task: str, state: TaskState | None) -> None:
    """A newer state record of a task; None: a tombstone. What needs no watching is not kept."""
    waits = pending[task].due_ms if task in pending else {}
    resting = state is None or (state.status is Status.IDLE and state.next_slot_ms is None and not state.paused)
    if waits or not resting:
        pending[task] = Pending(state, waits)
    else:
        pending.pop(task, None)


def take_work(pending: dict[str, Pending], task: str, seq: int, work: Work | None) -> None:
    """Work that waits, or that no longer does (None)."""
    known = pending.get(task, Pending())
    waits = {number: due for number, due in known.due_ms.items() if number != seq}
    if work is not None:
        waits[seq] = max(work.due_ms, work.arrived_ms)
    if known.state is None and not waits:
        pending.pop(task, None)
    else:
        pending[task] = Pending(known.state, waits)
