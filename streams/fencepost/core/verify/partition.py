"""One partition: everything that is fed to the check, and what it all comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fencepost.core.commands import History
from fencepost.core.schedule import Schedule
from fencepost.core.task import Status, TaskState
from fencepost.core.times import format_ms
from fencepost.core.verify.fences import Fences, Stamp, Turns
from fencepost.core.verify.finding import Counts, Finding, Findings, Kind
from fencepost.core.verify.known import Known, Stated, Store, stated
from fencepost.core.verify.runs import Runs
from fencepost.core.verify.slots import Slots, items_of

UNATTENDED_MS: Final = 60_000  # beyond two leases: session timeouts, a new owner's restore


class PartitionCheck:
    """Checks one partition: definitions and state records first, then the history, then `finish`.

    complete: the history goes back to its beginning; otherwise a task may begin in the middle of a run.
    schedules: of tasks that are declared in code. waiting_slots: slots that wait for their run, by task.
    owner: (nonce, released) of the partition's last fence record, where `fences` are not given; None if there was none.
    fences: what the log of owners held before the state was read; `fences_by_now` brings what it held afterwards.
    store: where what is remembered of each task lies.
    """

    def __init__(
        self,
        complete: bool,
        schedules: Mapping[str, Schedule] | None = None,
        waiting_slots: Mapping[str, Iterable[int]] | None = None,
        owner: tuple[str, bool] | None = None,
        *,
        number: int = 0,
        fences: Fences | None = None,
        store: Store | None = None,
    ) -> None:
        self._complete = complete
        self._waiting = waiting_slots or {}
        self._owner = owner
        self._fences = fences
        self._tasks: Store = {} if store is None else store
        self._findings = Findings(number)
        self._runs = Runs(self._findings, complete)
        self._slots = Slots(self._findings, schedules or {})
        self._state_turns = Turns("state", fences, self._findings)
        self._turns = Turns("runs", fences, self._findings)
        self._events = 0
        self.any_running = False  # whether a state record said so: then it matters who is alive

    # --- definitions and state ---------------------------------------------------------------------------------------

    def defined(self, task: str, schedule: Schedule | None) -> None:
        """The newest definition of a task in the tasks topic so far; None: without a schedule, or deleted."""
        known = self._tasks.get(task)
        if known is None and schedule is None:
            return
        if known is None:
            known = self._tasks[task] = Known()
        known.schedule = None if schedule is None else items_of(schedule)
        known.bad_definition = None

    def state(self, state: TaskState, at: int = -1, stamp: Stamp | None = None) -> None:
        """The next state record of a task: it takes the place of the one before."""
        if stamp is not None:
            self._state_turns.record(state.task, state.epoch, stamp, at)
        known = self._known(state.task)
        known.stated = stated(state, at)
        known.problem = None
        self.any_running = self.any_running or state.status is Status.RUNNING

    def state_gone(self, task: str) -> None:
        """A tombstone of the state: its history has to say that it was forgotten."""
        known = self._tasks.get(task)
        if known is not None:
            known.stated = None

    def waits(self, task: str, seq: int, slot_ms: int | None, at: int = -1, stamp: Stamp | None = None) -> None:
        """The next record of work that waits; `slot_ms` None: not, or no longer, for a slot."""
        if stamp is not None:
            self._state_turns.record(task, None, stamp, at)
        known = self._tasks.get(task)
        if slot_ms is not None:
            (self._known(task) if known is None else known).waiting[seq] = slot_ms
        elif known is not None:
            known.waiting.pop(seq, None)

    def state_fence(self, stamp: Stamp, at: int) -> None:
        """A fence in the state topic: what follows there is written under it."""
        self._state_turns.fence(stamp, at)

    def stamped(self, task: str, stamp: Stamp, at: int) -> None:
        """Another record of the task in the state topic, of which only the writer matters."""
        self._state_turns.record(task, None, stamp, at)

    def unreadable(self, task: str, why: str = "cannot be read") -> None:
        """The task's newest state cannot be read: its history is checked, its state is not compared."""
        self._known(task).problem = why

    def bad_definition(self, task: str, why: str) -> None:
        """The task's newest definition cannot be read: its slots are counted only as far as history tells."""
        known = self._known(task)
        known.bad_definition, known.schedule = why, None

    def problems(self) -> Iterable[tuple[str, str]]:
        """Tasks of which something cannot be read, and why."""
        for task, known in self._tasks.items():
            if known.problem is not None:
                yield task, f"state: {known.problem}"
            if known.bad_definition is not None:
                yield task, f"definition: {known.bad_definition}"

    # --- history -----------------------------------------------------------------------------------------------------

    def fences_by_now(self, fences: Fences) -> None:
        """What the log of owners holds, read after the end of the history was taken."""
        self._fences = fences
        self._turns = Turns("runs", fences, self._findings)

    def event(self, task: str, event: History, at: int = 0, stamp: Stamp | None = None) -> None:
        """The next history record of the partition."""
        if not self._events and not self._complete:
            self._slots.since_ms = event.at_ms
        self._events += 1
        if stamp is not None:
            self._turns.record(task, event.epoch, stamp, at)
            if event.kind == "started" and "worker" in event.fields:
                self._asked_of(task, event, stamp, at)
        known = self._known(task)
        promised = self._runs.event(task, known, event, at)
        self._slots.event(task, known, event, at, promised)

    def _asked_of(self, task: str, event: History, stamp: Stamp, at: int) -> None:
        """A broadcast names the worker that shall run this part of it, and a lane its worker."""
        worker, on = event.fields["worker"], stamp.lane.rsplit("/", 2)[0]
        if worker != on:
            text = f"epoch {event.epoch} was asked of worker {worker}, and {on} ran it"
            self._findings.add(Kind.ELSEWHERE, task, event.epoch, text, (at,))

    def _known(self, task: str) -> Known:
        known = self._tasks.get(task)
        if known is None:
            known = self._tasks[task] = Known()
            for seq, slot_ms in enumerate(self._waiting.get(task, ())):
                known.waiting[-1 - seq] = slot_ms
        return known

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def more(self) -> Mapping[Kind, int]:
        """Findings beyond `MAX_FINDINGS`, by kind."""
        return self._findings.more

    def finish(self, heard: Mapping[str, int] | None = None, now_ms: int | None = None) -> tuple[list[Finding], Counts]:
        """All findings, in order, and what was looked at.

        heard: when each lane last renewed a lease, in ms; now_ms: the time now. Without them nobody is called silent.
        """
        running = tasks = 0
        for task, known in self._tasks.items():
            tasks += 1
            running += known.stated is not None and known.stated.running
            if known.problem is None:
                self._compare(task, known, heard, now_ms)
            self._slots.close(task, known)
        return self._findings.kept, Counts(tasks, self._events, self._runs.started, running)

    def _compare(self, task: str, known: Known, heard: Mapping[str, int] | None, now_ms: int | None) -> None:
        """The state record was read before the history, so history may be ahead, never behind."""
        said = known.stated
        if said is None:
            if known.last and known.forgotten != known.last:
                text = "history tells of runs, but there is no state record"
                self._findings.add(Kind.STATE, task, known.last, text, (known.last_at,))
            return
        # Without history of this task the epoch may be from before what is kept, or from the partition's floor.
        if known.last and known.last < said.epoch and known.forgotten != known.last:
            text = f"state is at epoch {said.epoch}, history ends at {known.last}"
            self._findings.add(Kind.STATE, task, said.epoch, text, (known.last_at,), (said.at,))
        if said.running:
            self._check_running(task, said, known, heard, now_ms)
        else:
            self._check_rest(task, said, known)
        if said.last is not None and said.last[0] == known.ended and said.last[1] != known.ended_as:
            text = f"state says that epoch {known.ended} {said.last[1]}, history that it {known.ended_as}"
            self._findings.add(Kind.STATE, task, known.ended, text, (known.ended_at,), (said.at,))

    def _check_rest(self, task: str, said: Stated, known: Known) -> None:
        status = "backoff" if said.backoff else "idle"
        for epoch, started_at in known.opened:
            if epoch == said.epoch:
                text = f"history has epoch {epoch} still running, state says {status}"
                self._findings.add(Kind.STATE, task, epoch, text, (started_at,), (said.at,))
        promise = known.promise
        if promise is not None and promise.epoch == said.epoch and not said.backoff:
            text = f"epoch {promise.epoch} ended to be tried again, but the state holds nothing to try"
            self._findings.add(Kind.DROPPED, task, promise.epoch, text, (promise.at,), (said.at,))

    def _check_running(
        self, task: str, said: Stated, known: Known, heard: Mapping[str, int] | None, now_ms: int | None
    ) -> None:
        if said.run is None or said.run[0] != said.epoch:
            text = "state says running, and names no run of its epoch"
            self._findings.add(Kind.STATE, task, said.epoch, text, state=(said.at,))
            return
        epoch, lane, nonce, lease_ttl_s = said.run
        moved_on = known.last > epoch or known.ended >= epoch
        if not moved_on and not known.opened and self._complete:
            text = f"state says epoch {epoch} runs, history never started it"
            self._findings.add(Kind.STATE, task, epoch, text, state=(said.at,))
        if moved_on:
            return
        started = [at for number, at in known.opened if number == epoch]
        last = None if self._fences is None else self._fences.last
        owner = self._owner if last is None else (last.nonce, last.released)
        fenced_at = -1 if last is None else last.offset

        def found(kind: Kind, text: str) -> None:
            self._findings.add(kind, task, epoch, text, started, (said.at,), (fenced_at,))

        if owner is None:
            return
        if owner[1]:
            found(Kind.NO_OWNER, f"epoch {epoch} runs, but its partition was released")
            return
        if last is not None and heard is not None and now_ms is not None:
            heard_ms = max(last.at_ms, heard.get(last.lane, 0))
            if now_ms - heard_ms > UNATTENDED_MS + 2000 * lease_ttl_s:
                text = f"epoch {epoch} has no end, and its owner {last.lane} was last heard of at {format_ms(heard_ms)}"
                found(Kind.NO_OWNER, text)
                return
            if nonce != last.nonce and now_ms - last.at_ms > UNATTENDED_MS + 2000 * lease_ttl_s:
                found(Kind.NO_OWNER, f"epoch {epoch} of {lane} has no end, though its lease is long over")
                return
        if nonce != owner[0]:
            found(Kind.NOTE, f"epoch {epoch} was begun by an earlier owner ({lane}); its lease is being waited out")
