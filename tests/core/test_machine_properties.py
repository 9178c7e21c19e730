"""Random histories of one task: what must hold after every step, whatever happens in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.core.commands import (
    Command,
    DropCheckpoint,
    DropLeftOut,
    DropWork,
    GiveUp,
    History,
    Launch,
    PutCheckpoint,
    PutLeftOut,
    PutWork,
    Stop,
)
from fencepost.core.events import (
    Adopted,
    Backfilled,
    Cancelled,
    Checkpointed,
    Defined,
    Deleted,
    Ended,
    Event,
    Interrupted,
    Paused,
    Resumed,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.machine import IllegalEvent, new_task, restored_task, startable, step, wake_at_ms
from fencepost.core.making import CATCH_UP
from fencepost.core.schedule import Cron, Every, Once
from fencepost.core.table import TABLE
from fencepost.core.task import (
    CatchUp,
    Cause,
    Definition,
    OnInterruption,
    OnResume,
    Outcome,
    Overlap,
    Retry,
    Status,
    Work,
)
from fencepost.core.times import parse_rfc3339
from fencepost.wire.state import decode_state, encode_state
from fencepost.wire.work import decode_work, encode_work
from tests.core.play import HOUR, MINUTE, SECOND, T0, TASK, definition

schedules = st.sampled_from(
    [None, Every(60), Every(7), Cron("*/2 * * * *", time_zone="UTC"), Once(T0 + 10 * MINUTE), Once(T0 - 10 * MINUTE)]
)
definitions = st.builds(
    definition,
    schedule=schedules,
    overlap=st.sampled_from(Overlap),
    buffer_limit=st.integers(1, 4),
    batch_limit=st.integers(1, 4),
    start_timeout_s=st.sampled_from([None, None, 90.0]),
    total_timeout_s=st.sampled_from([None, None, 90.0]),
    retry=st.builds(Retry, attempts=st.integers(1, 3), delay_s=st.sampled_from([0.0, 1.0, 30.0])),
    on_interruption=st.sampled_from(OnInterruption),
    max_losses=st.integers(0, 2),
    settle_s=st.sampled_from([0.0, 0.0, 5.0]),
    catch_up_s=st.sampled_from([0.0, 90.0, 3600.0]),
    catch_up=st.sampled_from(CatchUp),
    payload=st.sampled_from([None, {"default": 1}]),
    paused=st.sampled_from([False, False, False, True]),
)
spreads = st.floats(-1, 1)
ENDS_OF_WORK = ("succeeded", "cancelled")


class TaskHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.task = new_task(TASK)
        self.now_ms = T0
        self.offset = -1
        self.control_offset = -1
        self.definition: Definition | None = None
        self.sent: dict[str, int] = {}  # trigger id -> offset, for those that were taken
        self.settled: dict[str, str] = {}  # trigger id -> how it ended
        self.unknown: set[str] = set()  # ids that came while the task was not defined: these are not remembered
        self.records: dict[int, bytes] = {}  # seq -> work record
        self.checkpoint: Any = None
        self.launched: list[int] = []
        self.slots: list[int] = []  # those that were decided on: they wait, or were skipped at once
        self.left: list[int] = []  # those of them that waited and were skipped then
        self.missed: list[tuple[int, int]] = []
        self.left_out: tuple[int, ...] = ()
        self.caught_up: list[int] = []  # slots that ran late, one after the other

    # -- the shell --

    def act(self, event: Event) -> tuple[Command, ...]:
        before = self.task
        legal = (before.state.status, type(event)) in TABLE
        if isinstance(event, Started):
            legal = legal and startable(before, self.now_ms)
        try:
            self.task, commands = step(before, event, self.now_ms)
        except IllegalEvent:
            assert not legal
            assert self.task is before
            return ()
        assert legal
        assert self.task.state.status in TABLE[before.state.status, type(event)].leads_to
        assert self.task.state.epoch == before.state.epoch + isinstance(event, Started)
        for command in commands:
            self._take(command)
        return commands

    def _take(self, command: Command) -> None:
        if isinstance(command, PutWork):
            assert command.work.seq not in self.records
            if command.work.slot_ms is not None:
                self.slots.append(command.work.slot_ms)
            self.records[command.work.seq] = encode_work(TASK, command.work, "lane", "nonce")
        elif isinstance(command, DropWork):
            del self.records[command.seq]  # a record that is not there must not be dropped
        elif isinstance(command, PutLeftOut):
            assert not self.left_out
            self.left_out = command.slots_ms
        elif isinstance(command, DropLeftOut):
            assert self.left_out
            self.left_out = ()
        elif isinstance(command, PutCheckpoint):
            self.checkpoint = command.data
        elif isinstance(command, DropCheckpoint):
            assert self.checkpoint is not None
            self.checkpoint = None
        elif isinstance(command, Launch):
            assert not self.launched or command.run.epoch > self.launched[-1]
            if command.work.asked_by == CATCH_UP and command.work.attempt == 1 and not command.work.past:
                slot_ms = command.work.slot_ms
                assert slot_ms is not None
                assert slot_ms not in self.slots
                assert not any(first <= slot_ms <= last for first, last in self.missed)
                assert not self.caught_up or slot_ms > self.caught_up[-1]
                self.caught_up.append(slot_ms)
            self.launched.append(command.run.epoch)
        elif isinstance(command, Stop):
            assert self.launched[-1] == command.epoch
        elif isinstance(command, History):
            self._read(command)
        elif isinstance(command, GiveUp):
            assert command.work.trigger_id is None or self.settled[command.work.trigger_id] == "given up"

    def _read(self, history: History) -> None:
        fields, kind = history.fields, history.kind
        if kind == "missed":
            first, last = parse_rfc3339(fields["first"]), parse_rfc3339(fields["last"])
            assert first <= last
            assert not any(first <= other_last and other_first <= last for other_first, other_last in self.missed)
            assert not any(first <= slot_ms <= last for slot_ms in self.caught_up)
            self.missed.append((first, last))
        if kind == "skipped" and "slot" in fields and fields["cause"] in ("overlap", "buffer full"):
            # Skipped at once, or after it waited.
            (self.left if parse_rfc3339(fields["slot"]) in self.slots else self.slots).append(
                parse_rfc3339(fields["slot"])
            )
        for request in (fields, *fields.get("batch", ())):
            self._read_request(request.get("trigger"), kind, fields)

    def _read_request(self, id: str | None, kind: str, fields: dict[str, Any]) -> None:
        if id is None or kind in ("started", "triggered", "adopted") or "retry_at" in fields:
            return
        assert kind in ("skipped", "succeeded", "failed", "timed_out", "cancelled", "interrupted")
        if fields.get("cause") in ("deleted", "not defined"):
            self.unknown.add(id)
        if fields.get("cause") != "duplicate":
            assert id not in self.settled, f"{id} ended twice"
            self.settled[id] = "given up" if "given_up" in fields else kind

    # -- what may happen --

    @initialize(first=definitions)
    def begin(self, first: Definition) -> None:
        self.define(first)

    @rule(changed=definitions)
    def define(self, changed: Definition) -> None:
        self.definition = changed
        self.act(Defined(changed))

    @rule()
    def define_again(self) -> None:
        if self.definition is not None:
            before = self.task
            self.act(Defined(self.definition))
            assert self.task is before

    @rule()
    def delete(self) -> None:
        self.definition = None
        self.act(Deleted())

    @rule(
        delay_ms=st.sampled_from([0, 0, 0, -HOUR, 5 * SECOND, 10 * MINUTE]),
        priority=st.sampled_from([None, 0, 9]),
        large=st.booleans(),
    )
    def trigger(self, delay_ms: int, priority: int | None, large: bool) -> None:
        self.offset += 1
        id = f"t{self.offset}"
        self.sent[id] = self.offset
        run_at_ms = self.now_ms + delay_ms if delay_ms else None
        payload, size = ("x" * 2000, 2002) if large else (self.offset, 2)
        ahead = self._ahead()
        self.act(Triggered(Trigger(TASK, id, payload, run_at_ms, priority, None, self.offset, self.now_ms, size)))

        if self.definition is not None:
            assert self._ahead() <= max(ahead, self._room(self.definition))

    def _ahead(self) -> int:
        return len(self.task.waiting) + (self.task.state.status is not Status.IDLE)

    def _room(self, given: Definition) -> int:
        """How many requests of a task may be on or wait, by its overlap policy."""
        room = {Overlap.SKIP: 1, Overlap.BUFFER_ALL: 1 + given.buffer_limit, Overlap.BATCH: 1 + given.buffer_limit}
        return room.get(given.overlap, 2)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def trigger_again(self, data: st.DataObject) -> None:
        """The same id at a new offset: a duplicate, as long as it is remembered."""
        id = data.draw(st.sampled_from(sorted(self.sent)))
        if self.now_ms - T0 < 20 * HOUR and len(self.sent) <= 100 and id not in self.unknown:
            self.offset += 1
            commands = self.act(Triggered(Trigger(TASK, id, offset=self.offset)))
            assert all(isinstance(told, History) and told.kind == "skipped" for told in commands)

    @precondition(lambda self: self.offset >= 0)
    @rule(data=st.data())
    def read_again(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.offset))
        before = self.task
        assert self.act(Triggered(Trigger(TASK, "whatever", offset=offset))) == ()
        assert self.task is before

    @rule()
    def start(self) -> None:
        self.act(Started("lane", f"nonce {len(self.launched)}", 15.0))

    @rule(outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT]), spread=spreads)
    def end(self, outcome: Outcome, spread: float) -> None:
        self.act(Ended(self.task.state.epoch, outcome, {"n": 1}, "boom", spread))

    @rule(cause=st.sampled_from(Cause), spread=spreads)
    def interrupt(self, cause: Cause, spread: float) -> None:
        self.act(Interrupted(self.task.state.epoch, cause, spread))

    @precondition(lambda self: self.task.state.epoch > 0)
    @rule(behind=st.integers(1, 3))
    def news_of_an_older_run(self, behind: int) -> None:
        before = self.task
        for event in (
            Ended(before.state.epoch - behind, Outcome.SUCCEEDED),
            Interrupted(before.state.epoch - behind, Cause.LOST),
            Checkpointed(before.state.epoch + behind, 1),
            Adopted(before.state.epoch + behind, "n"),
        ):
            try:
                step(before, event, self.now_ms)
            except IllegalEvent:
                continue
            raise AssertionError(f"{event} was taken")

    @rule()
    def adopt(self) -> None:
        self.act(Adopted(self.task.state.epoch, "another nonce"))

    @rule(data=st.sampled_from([None, 1, {"row": 2}]))
    def save(self, data: Any) -> None:
        self.act(Checkpointed(self.task.state.epoch, data))

    @rule(kind=st.sampled_from([Cancelled, Paused, Resumed]), reason=st.sampled_from([None, "because"]))
    def operate(self, kind: type, reason: str | None) -> None:
        self.control_offset += 1
        self.act(kind(self.control_offset) if kind is Resumed else kind(self.control_offset, reason))

    @rule(on_resume=st.sampled_from(OnResume))
    def pause_for(self, on_resume: OnResume) -> None:
        self.control_offset += 1
        self.act(Paused(self.control_offset, None, on_resume))

    @rule(hours=st.integers(0, 3), again=st.booleans(), stop=st.sampled_from([False, False, True]))
    def backfill(self, hours: int, again: bool, stop: bool) -> None:
        self.control_offset += 1
        left_out = () if again else tuple(sorted({*self.slots, *self.caught_up}))
        since_ms = self.now_ms - hours * HOUR
        self.act(Backfilled(self.control_offset, "b", since_ms, self.now_ms, left_out, stop))

    @rule()
    def wake(self) -> None:
        self.act(Woken())

    @rule()
    def sleep_until_woken(self) -> None:
        at_ms = wake_at_ms(self.task, self.now_ms)
        if at_ms is not None:
            self.now_ms = max(self.now_ms, at_ms)
            self.act(Woken())
            later_ms = wake_at_ms(self.task, self.now_ms)
            assert later_ms is None or later_ms > self.now_ms, "a task that was woken asks to be woken for the past"

    @rule(ms=st.sampled_from([1, SECOND, MINUTE, 3 * HOUR, -10 * SECOND]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def take_over(self) -> None:
        """Everything is read back from its records by another owner."""
        before = self.task
        works = [decode_work(value) for value in self.records.values()]
        state = decode_state(encode_state(before.state, "lane", "nonce"))
        self.task = restored_task(state, works, self.checkpoint, left_out=self.left_out)
        if self.definition is not None:
            self.act(Defined(self.definition, restored=True))
        assert self.task.state == before.state
        assert self.task.checkpoint == before.checkpoint
        before_works = sorted((*before.waiting, *before.delayed), key=lambda work: work.seq)
        assert sorted((*self.task.waiting, *self.task.delayed), key=lambda work: work.seq) == before_works

    # -- what always holds --

    @invariant()
    def at_most_one_run_is_on(self) -> None:
        state = self.task.state
        assert (state.status is Status.RUNNING) == (state.run is not None)
        assert (state.status is Status.IDLE) == (state.work is None)
        assert (state.status is Status.BACKOFF) == (state.retry_at_ms is not None)
        if state.run is not None:
            assert state.run.epoch == state.epoch == self.launched[-1]

    @invariant()
    def every_trigger_is_accounted_for(self) -> None:
        held = [work.trigger_id for work in self._held() if work.trigger_id is not None]
        assert len(held) == len(set(held))
        assert set(held) | set(self.settled) == set(self.sent)
        assert not set(held) & set(self.settled)

    @invariant()
    def records_are_exactly_those_of_what_waits(self) -> None:
        expected = {work.seq: work for work in (*self.task.waiting, *self.task.delayed)}
        work = self.task.state.work
        if work is not None and work.own_record:
            expected |= {each.seq: each for each in (work, *work.members)}
        assert self.records.keys() == expected.keys()
        assert self.checkpoint == self.task.checkpoint

    @invariant()
    def what_a_backfill_leaves_out_is_on_record_while_it_lasts(self) -> None:
        assert self.left_out == self.task.left_out
        assert not self.left_out or self.task.state.backfill is not None

    @invariant()
    def no_slot_is_decided_on_twice(self) -> None:
        assert len(self.slots) == len(set(self.slots))
        assert len(self.left) == len(set(self.left))
        state = self.task.state
        assert state.next_slot_ms is None or state.next_slot_ms > state.last_slot_ms

    @invariant()
    def waiting_work_is_in_order(self) -> None:
        waiting = self.task.waiting
        for priority in range(10):
            level = [work.seq for work in waiting if work.priority == priority and not work.due_ms]
            assert level == sorted(level)
        restored = restored_task(new_task(TASK).state, [decode_work(self.records[work.seq]) for work in waiting])
        assert [work.seq for work in restored.waiting] == [work.seq for work in waiting if not work.due_ms]
        assert list(self.task.delayed) == sorted(self.task.delayed, key=lambda work: work.due_ms)

    @invariant()
    def a_state_goes_through_its_record_unharmed(self) -> None:
        state = self.task.state
        value = encode_state(state, "lane", "nonce")
        assert len(value) <= 4096
        read = decode_state(value)
        if state.work is not None and state.work.own_record:
            own = (state.work, *state.work.members)
            read = restored_task(read, [decode_work(self.records[work.seq]) for work in own]).state
        assert read == state

    def _held(self) -> list[Work]:
        work = self.task.state.work
        return [*self.task.waiting, *self.task.delayed, *([] if work is None else [work, *work.members])]


TestTaskHistory = TaskHistory.TestCase
TestTaskHistory.settings = settings(max_examples=100, stateful_step_count=50)
