"""Random histories of tasks that are tied to each other: the records of each give back the task that is in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fencepost.core.attendance import Attendance
from fencepost.core.broadcasts import is_for_a_worker
from fencepost.core.commands import (
    Ask,
    Command,
    Define,
    DropCheckpoint,
    DropClaim,
    DropFan,
    DropJoin,
    DropLeftOut,
    DropLinks,
    DropWork,
    Forget,
    GiveUp,
    History,
    Launch,
    PutCheckpoint,
    PutClaim,
    PutFan,
    PutGroup,
    PutJoin,
    PutLeftOut,
    PutLinks,
    PutWork,
    Send,
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
    Rerun,
    Resumed,
    Signalled,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.limits import Group, Limit
from fencepost.core.links import When
from fencepost.core.machine import IllegalEvent, new_task, restored_task, startable, step, wake_at_ms
from fencepost.core.schedule import Every
from fencepost.core.task import (
    CatchUp,
    Cause,
    Definition,
    OnInterruption,
    OnResume,
    Outcome,
    Overlap,
    PythonHandler,
    Retry,
    Task,
    Work,
)
from fencepost.wire.control import encode_signal, read_control
from fencepost.wire.definition import encode_definition, read_definition
from fencepost.wire.fan import decode_fan, encode_fan
from fencepost.wire.left_out import decode_left_out, encode_left_out
from fencepost.wire.limit import decode_claim, decode_group, encode_claim, encode_group
from fencepost.wire.links import decode_join, decode_links, encode_join, encode_links
from fencepost.wire.state import STATE_BYTES, decode_state, encode_state
from fencepost.wire.trigger import encode_asked, read_trigger
from fencepost.wire.work import decode_checkpoint, decode_work, encode_checkpoint, encode_work
from tests.core.play import MINUTE, SECOND, T0

NAMES = ("a", "b", "c")
WROTE = ("lane", "nonce")
Side = tuple[str, int]  # kind and number

definitions = st.builds(
    Definition,
    task=st.sampled_from(NAMES),
    handler=st.just(PythonHandler("f")),
    schedule=st.sampled_from([None, None, Every(60)]),
    retry=st.builds(Retry, st.integers(1, 3), st.just(1.0), on=st.sampled_from([(), ("Boom", 3)])),
    overlap=st.sampled_from(Overlap),
    buffer_limit=st.integers(1, 4),
    on_interruption=st.sampled_from(OnInterruption),
    settle_s=st.sampled_from([0.0, 0.0, 5.0]),
    paused=st.sampled_from([False, False, False, True]),
    catch_up=st.sampled_from(CatchUp),
    limit=st.sampled_from([None, None, Limit("k", 1), Limit("k", 2, "2/m")]),
    batch_limit=st.integers(1, 3),
    payload=st.sampled_from([None, [1, 2, 3], [], "x"]),
    start_timeout_s=st.sampled_from([None, None, 40.0]),
    heartbeat_s=st.sampled_from([None, 9.5]),
    total_timeout_s=st.sampled_from([None, 90.0]),
    after=st.sets(st.sampled_from(NAMES), max_size=2).map(lambda names: tuple(sorted(names))),
    when=st.sampled_from(When),
    propagate_failure=st.booleans(),
    shards=st.sampled_from([0, 0, 1, 3]),
    broadcast=st.sampled_from([False, False, True]),
    chunk=st.integers(1, 2),
)


def sound(definition: Definition) -> Definition:
    """No task runs after itself; some of those without shards are fanned out by a list."""
    after = tuple(name for name in definition.after if name != definition.task)
    if definition.broadcast:
        overlap = definition.overlap if definition.overlap in _OF_BROADCASTS else Overlap.BUFFER_ALL
        return replace(definition, after=after, shards=0, map="", overlap=overlap)
    mapped = definition.chunk == 2 and not definition.shards
    return replace(definition, after=after, map=(after[0] if after else "payload") if mapped else "")


_OF_BROADCASTS = (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL)


class TiedTasks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = T0
        self.tasks: dict[str, Task] = {}
        self.side: dict[str, dict[Side, bytes]] = {}
        self.on_way: dict[tuple[str, str], list[tuple[str, bytes | None]]] = {}
        self.offsets: dict[str, int] = {}

    # -- the shell --

    def act(self, name: str, event: Event) -> None:
        before = self.tasks.get(name) or new_task(name)
        try:
            task, commands = step(before, event, self.now_ms)
        except IllegalEvent:
            return
        self.tasks[name] = task
        for command in commands:
            self._write(name, before, command)
        self._compare(name)

    def _write(self, name: str, before: Task, command: Command) -> None:
        side = self.side.setdefault(name, {})
        match command:
            case PutWork(work):
                side["work", work.seq] = encode_work(name, work, *WROTE)
            case DropWork(seq):
                side.pop(("work", seq), None)
            case PutCheckpoint(data):
                side["checkpoint", 0] = encode_checkpoint(name, data, *WROTE)
            case DropCheckpoint():
                side.pop(("checkpoint", 0))
            case PutLinks(links):
                side["links", 0] = encode_links(name, links, *WROTE)
            case DropLinks():
                side.pop(("links", 0), None)
            case PutJoin(join):
                side["join", join.number] = encode_join(name, join, *WROTE)
            case DropJoin(number):
                side.pop(("join", number))
            case PutFan(fan):
                side["fan", fan.number] = encode_fan(name, fan, *WROTE)
            case DropFan(number):
                side.pop(("fan", number), None)
            case PutClaim(claim):
                side["claim", claim.number] = encode_claim(name, claim, *WROTE)
            case DropClaim(number):
                side.pop(("claim", number))
            case PutGroup(next_ms):
                side["group", 0] = encode_group(name, next_ms, *WROTE)
            case PutLeftOut(slots_ms):
                side["left_out", 0] = encode_left_out(name, slots_ms, *WROTE)
            case DropLeftOut():
                side.pop(("left_out", 0), None)
            case Send(target, signal):
                self._send(name, target, "signal", encode_signal(name, signal, *WROTE))
            case Ask(trigger):
                self._send(name, trigger.task, "trigger", encode_asked(trigger))
            case Define(target, definition):
                self._send(name, target, "definition", None if definition is None else encode_definition(definition))
            case _:
                assert isinstance(command, History | Forget | GiveUp | Launch | Stop), command

    def _send(self, sender: str, target: str, kind: str, value: bytes | None) -> None:
        self.on_way.setdefault((sender, target), []).append((kind, value))

    def restored(self, name: str) -> Task:
        """The task as its next owner reads it, its definition included."""
        task, side = self.tasks[name], self.side.get(name, {})
        value = encode_state(task.state, *WROTE)
        assert len(value) <= STATE_BYTES

        def of(kind: str) -> list[bytes]:
            return [value for (known, _), value in side.items() if known == kind]

        links, checkpoint, left_out = of("links"), of("checkpoint"), of("left_out")
        claims, group = sorted(map(decode_claim, of("claim")), key=lambda claim: claim.number), of("group")
        again = restored_task(
            decode_state(value),
            list(map(decode_work, of("work"))),
            decode_checkpoint(checkpoint[0]) if checkpoint else None,
            decode_links(links[0]) if links else None,
            list(map(decode_join, of("join"))),
            list(map(decode_fan, of("fan"))),
            Group(tuple(claims), decode_group(group[0]) if group else 0.0) if claims or group else None,
            decode_left_out(left_out[0]) if left_out else (),
        )
        if task.definition is None:
            return again
        _, definition = read_definition(name.encode(), encode_definition(task.definition))
        assert definition == task.definition
        again, commands = step(again, Defined(definition, restored=True), self.now_ms)
        if not any(work.due_ms for work in task.waiting):
            assert not commands, "what was known before is no news"
        return again

    def _compare(self, name: str) -> None:
        """Work that came due and waits is admitted again: that is the one difference there may be."""
        task, again = self.tasks[name], self.restored(name)
        due = {work.seq for work in task.waiting if work.due_ms}
        if due and task.state.permit is not None:
            return  # until it is admitted again it does not want to start: what it asked for is given back

        def by_seq(works: tuple[Work, ...]) -> list[Work]:
            return sorted(works, key=lambda work: work.seq)

        assert by_seq(again.waiting + again.delayed) == by_seq(task.waiting + task.delayed)
        assert [work for work in task.waiting if work.seq not in due] == list(again.waiting)
        assert [work for work in again.delayed if work.seq not in due] == list(task.delayed)
        assert replace(again, waiting=(), delayed=()) == replace(task, waiting=(), delayed=())
        if not due:
            assert again == task
            assert startable(again, self.now_ms) == startable(task, self.now_ms)
            assert wake_at_ms(again, self.now_ms) == wake_at_ms(task, self.now_ms)

    # -- what may happen --

    @initialize(given=st.tuples(definitions, definitions, definitions))
    def begin(self, given: tuple[Definition, ...]) -> None:
        for name, one in zip(NAMES, given, strict=True):
            self.act(name, Defined(sound(replace(one, task=name))))

    @rule(changed=definitions)
    def define(self, changed: Definition) -> None:
        self.act(changed.task, Defined(sound(changed)))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.act(name, Deleted())

    @rule(
        name=st.sampled_from(NAMES),
        delay_ms=st.sampled_from([None, None, None, 5 * SECOND]),
        large=st.booleans(),
        priority=st.sampled_from([None, 0, 9]),
        id=st.sampled_from([None, None, "one", "two"]),
        replays=st.sampled_from([0, 2]),
    )
    def trigger(self, name: str, delay_ms: int | None, large: bool, priority: int | None, **fields: Any) -> None:
        self.act(
            name,
            Triggered(
                Trigger(
                    name,
                    payload=["x" * 600, 2] if large else None,
                    delay_ms=delay_ms,
                    priority=priority,
                    offset=self._offset(name),
                    size=700 if large else 2,
                    **fields,
                )
            ),
        )

    def _offset(self, log: str) -> int:
        self.offsets[log] = self.offsets.get(log, -1) + 1
        return self.offsets[log]

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.tasks)))

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        ready = [name for name in sorted(self.tasks) if startable(self.tasks[name], self.now_ms)]
        if ready:
            workers = data.draw(st.sets(st.sampled_from("xyz"), min_size=1))
            there = Attendance(4, tuple((worker, number) for number, worker in enumerate(sorted(workers))))
            started = Started("lane", "nonce", 15.0, data.draw(st.sampled_from("xyz")), data.draw(st.booleans()), there)
            name = data.draw(st.sampled_from(ready))
            self.act(
                name, started if started.able or is_for_a_worker(self.tasks[name]) else replace(started, able=True)
            )

    @rule(
        data=st.data(),
        outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT]),
        result=st.sampled_from([None, [1, 2, 3], {"a": "x" * 500}]),
        names=st.sampled_from([("Boom",), ()]),
        limit=st.sampled_from([None, "heartbeat"]),
        final=st.booleans(),
    )
    def end(self, data: st.DataObject, outcome: Outcome, result: Any, limit: str | None, **fields: Any) -> None:
        running = [name for name in sorted(self.tasks) if self.tasks[name].state.run is not None]
        if running:
            name = data.draw(st.sampled_from(running))
            limit = limit if outcome is Outcome.TIMED_OUT else None
            self.act(name, Ended(self.tasks[name].state.epoch, outcome, result, limit=limit, **fields))

    @rule(data=st.data(), cause=st.sampled_from(Cause))
    def interrupt(self, data: st.DataObject, cause: Cause) -> None:
        name = self.pick(data)
        self.act(name, Interrupted(self.tasks[name].state.epoch, cause))

    @rule(data=st.data(), saved=st.sampled_from([None, {"at": 3}]))
    def checkpoint(self, data: st.DataObject, saved: Any) -> None:
        name = self.pick(data)
        if self.tasks[name].state.run is not None:
            self.act(name, Checkpointed(self.tasks[name].state.epoch, saved))

    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        name = self.pick(data)
        self.act(name, Adopted(self.tasks[name].state.epoch, "next"))

    @rule(
        data=st.data(),
        op=st.sampled_from(["cancel", "cancel run", "pause", "pause, catch up", "resume", "rerun", "backfill", "stop"]),
    )
    def operate(self, data: st.DataObject, op: str) -> None:
        name = self.pick(data)
        offset = self._offset(f"{name} control")
        events: dict[str, Event] = {
            "cancel": Cancelled(offset),
            "cancel run": Cancelled(offset, "enough", False),
            "pause": Paused(offset, "a while"),
            "pause, catch up": Paused(offset, "a while", OnResume.LATEST),
            "rerun": Rerun(offset, 1, None, f"again {offset}", {"x": "y" * 600}, None, 3, 700),
            "backfill": Backfilled(offset, f"b{offset}", T0 - 5 * MINUTE, T0, (T0 - T0 % MINUTE - MINUTE,)),
            "stop": Backfilled(offset, stop=True),
            "resume": Resumed(offset),
        }
        self.act(name, events[op])

    @rule(data=st.data(), ms=st.sampled_from([100, 2 * SECOND, 30 * SECOND, 2 * MINUTE]))
    def wake(self, data: st.DataObject, ms: int) -> None:
        self.now_ms += ms
        self.act(self.pick(data), Woken())

    @precondition(lambda self: self.on_way)
    @rule(data=st.data(), most=st.integers(1, 8))
    def deliver(self, data: st.DataObject, most: int) -> None:
        place = data.draw(st.sampled_from(sorted(self.on_way)))
        sent = self.on_way.pop(place)
        if sent[most:]:
            self.on_way[place] = sent[most:]
        target, key = place[1], place[1].encode()
        for kind, value in sent[:most]:
            if kind == "trigger":
                event: Event = Triggered(read_trigger(key, value, None, self._offset(target), 0))
            elif kind == "definition":
                _, definition = read_definition(key, value)
                event = Deleted() if definition is None else Defined(definition)
            else:
                _, event = read_control(key, value, self._offset(f"{target} control"))
                assert isinstance(event, Signalled)
            self.act(target, event)


TestTiedTasks = TiedTasks.TestCase
TestTiedTasks.settings = settings(max_examples=60, stateful_step_count=50)
