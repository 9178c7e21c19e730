"""A task moves between its namespace and pools: epoch and requests go along, and it starts in one place only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.commands import Command, DropWork, Hand, History, Launch, PutWork, Send
from fencepost.core.events import (
    Defined,
    Deleted,
    Ended,
    Event,
    Interrupted,
    Paused,
    Resumed,
    Signalled,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.forgetting import forgettable
from fencepost.core.limits import Limit
from fencepost.core.machine import new_task, startable, step, wake_at_ms, why_not_startable
from fencepost.core.place import MAIN
from fencepost.core.schedule import Every
from fencepost.core.signals import Carry, GaveBack, Grant
from fencepost.core.task import Cause, Definition, Outcome, Retry, Status, Task
from tests.core.play import MINUTE, SECOND, T0, TASK, definition

POOLS = (MAIN, "gpu", "big")


class Houses:
    """A namespace and two pools, each with its owner of one ID; what they write for each other is read in its order."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {pool: new_task(TASK) for pool in POOLS}
        self.defined: dict[str, list[Definition | None]] = {pool: [] for pool in POOLS}  # not read yet
        self.control: dict[str, list[Any]] = {pool: [] for pool in POOLS}
        self.log: list[tuple[str, Command]] = []
        self.now_ms = T0
        self.offset = 0
        self.epochs: list[tuple[str, int]] = []  # started, in order

    def step(self, pool: str, event: Event) -> None:
        before = self.tasks[pool]
        self.tasks[pool], commands = step(before, event, self.now_ms)
        for command in commands:
            self.log.append((pool, command))
            if isinstance(command, Hand):
                self.defined[command.pool].append(command.definition)
            elif isinstance(command, Send):
                assert command.pool is not None
                self.control[command.pool].append(command.signal)

    def define(self, **fields: Any) -> None:
        self.step(MAIN, Defined(definition(**fields)))

    def trigger(self, id: str, **fields: Any) -> None:
        """As the intake does: it goes on to where the task is, unless that was called back."""
        self.offset += 1
        place = self.tasks[MAIN].state.place
        pool = MAIN if place is None or place.pool is None or place.recalled else place.pool
        if pool != MAIN:
            self.read(pool)
            left = self.tasks[pool].state.place
            if left is not None and left.left:
                self.read(MAIN)
                return self.trigger(id, **fields)
        self.step(pool, Triggered(Trigger(TASK, id, offset=self.offset, **fields)))
        return None

    def read(self, pool: str) -> None:
        """Definitions before control records: a record waits until those were read."""
        while self.defined[pool]:
            known = self.defined[pool].pop(0)
            self.step(pool, Deleted() if known is None else Defined(known))
        while self.control[pool]:
            self.offset += 1
            self.step(pool, Signalled(self.control[pool].pop(0), self.offset, TASK))

    def settle(self) -> None:
        while any(self.defined.values()) or any(self.control.values()):
            for pool in POOLS:
                self.read(pool)

    def start(self) -> str | None:
        """Start it wherever it can; None: nowhere. Never in two places."""
        able = [pool for pool in POOLS if startable(self.tasks[pool], self.now_ms)]
        running = [pool for pool in POOLS if self.tasks[pool].state.status is Status.RUNNING]
        assert len(able) + len(running) <= 1, (able, running)
        if not able:
            return None
        self.step(able[0], Started("lane", "nonce", 15.0))
        self.epochs.append((able[0], self.tasks[able[0]].state.epoch))
        return able[0]

    def end(self, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        for pool in POOLS:
            run = self.tasks[pool].state.run
            if run is not None:
                self.step(pool, Ended(run.epoch, outcome, error=None if outcome is Outcome.SUCCEEDED else "boom"))

    def waiting(self, pool: str) -> list[str | None]:
        task = self.tasks[pool]
        return [work.trigger_id for work in (*task.waiting, *task.delayed)]

    def told(self, pool: str, kind: str) -> list[dict[str, Any]]:
        return [c.fields for where, c in self.log if where == pool and isinstance(c, History) and c.kind == kind]

    def where(self) -> str:
        place = self.tasks[MAIN].state.place
        return MAIN if place is None or place.pool is None else place.pool


def in_gpu(**fields: Any) -> Houses:
    houses = Houses()
    houses.define(pool="gpu", **fields)
    houses.settle()
    return houses


def test_a_task_of_a_pool_is_handed_over_at_once_and_starts_there_alone() -> None:
    houses = in_gpu()
    houses.trigger("a")
    assert (houses.where(), houses.waiting(MAIN), houses.waiting("gpu")) == ("gpu", [], ["a"])
    assert why_not_startable(houses.tasks[MAIN], houses.now_ms) == "it is in another pool"
    assert houses.start() == "gpu"
    assert houses.told(MAIN, "moved") == [{"to": "gpu", "carried": 0}]


def test_a_change_of_pool_lets_the_run_end_and_takes_everything_else_along() -> None:
    houses = Houses()
    houses.define(retry=Retry(attempts=3, delay_s=10.0, jitter=0.0))
    for id in ("one", "two"):
        houses.trigger(id, payload={"id": id})
    houses.trigger("later", run_at_ms=T0 + MINUTE)
    assert houses.start() == MAIN
    houses.define(pool="gpu", retry=Retry(attempts=3, delay_s=10.0, jitter=0.0))
    houses.settle()
    assert houses.where() == MAIN  # its run may end
    houses.trigger("three")
    houses.end(Outcome.FAILED)
    houses.settle()
    gpu = houses.tasks["gpu"]
    assert (houses.where(), houses.waiting(MAIN)) == ("gpu", [])
    assert [work.trigger_id for work in gpu.waiting] == ["two", "three"]
    assert [(work.trigger_id, work.due_ms) for work in gpu.delayed] == [
        ("one", T0 + 10 * SECOND),
        ("later", T0 + MINUTE),
    ]
    assert gpu.delayed[0].attempt == 1  # the attempt it had counts
    assert gpu.waiting[0].payload == {"id": "two"}
    assert houses.start() == "gpu"
    assert houses.epochs == [(MAIN, 1), ("gpu", 2)]
    moved = [fields.get("trigger") for fields in houses.told(MAIN, "moved")]
    assert sorted(filter(None, moved)) == ["later", "one", "three", "two"]


def test_from_one_pool_to_another_it_goes_home_first() -> None:
    houses = in_gpu()
    houses.trigger("a")
    houses.start()
    houses.trigger("b")
    houses.define(pool="big")
    houses.settle()
    assert (houses.where(), houses.tasks[MAIN].state.place.recalled) == ("gpu", True)  # type: ignore[union-attr]
    houses.trigger("c")  # waits at home for the task
    assert houses.start() is None
    houses.end()
    houses.settle()
    assert houses.where() == "big"
    assert sorted(houses.waiting("big"), key=str) == ["b", "c"]
    assert houses.tasks["gpu"].state.place.left  # type: ignore[union-attr]
    houses.start()
    assert houses.epochs == [("gpu", 1), ("big", 2)]


def test_back_home_the_schedule_goes_on_from_its_last_slot() -> None:
    houses = in_gpu(schedule=Every(60.0))
    gpu = houses.tasks["gpu"]
    assert houses.tasks[MAIN].state.next_slot_ms is None
    assert gpu.state.next_slot_ms is not None
    houses.now_ms = gpu.state.next_slot_ms
    houses.step("gpu", Woken())
    assert houses.start() == "gpu"
    fired_ms = houses.now_ms
    houses.define(schedule=Every(60.0))
    houses.read("gpu")
    houses.now_ms += 90 * SECOND  # one slot goes by before the run ends
    houses.end()
    houses.settle()
    main = houses.tasks[MAIN].state
    assert (houses.where(), houses.tasks["gpu"].state.next_slot_ms) == (MAIN, None)
    assert main.next_slot_ms == fired_ms + 2 * MINUTE
    assert [work.slot_ms for work in houses.tasks[MAIN].waiting] == [fired_ms + MINUTE]
    assert houses.told(MAIN, "defined")[-1]["schedule"] == {"every_s": 60.0}


def test_what_was_taken_as_a_duplicate_stays_one_and_a_pause_stays_a_pause() -> None:
    houses = Houses()
    houses.define()
    houses.trigger("once")
    houses.start()
    houses.end()
    houses.step(MAIN, Paused(reason="lunch"))
    houses.define(pool="gpu")
    houses.settle()
    houses.trigger("once")
    assert houses.told("gpu", "skipped") == [{"trigger": "once", "offset": houses.offset, "cause": "duplicate"}]
    assert (houses.tasks["gpu"].state.paused, houses.tasks["gpu"].state.pause_reason) == (True, "lunch")


def test_a_pause_of_the_definition_ends_with_it_also_where_the_pool_had_not_read_that_yet() -> None:
    houses = in_gpu()
    houses.define(pool="gpu", paused=True)
    houses.settle()
    houses.define(paused=True)  # called back: the pool gives the task back as soon as it reads this
    houses.define()
    houses.settle()
    assert not houses.tasks[MAIN].state.paused
    houses.trigger("now")
    assert houses.start() == MAIN


def test_a_task_that_was_resumed_against_its_definition_stays_so_in_the_pool() -> None:
    houses = Houses()
    houses.define(paused=True)
    houses.step(MAIN, Resumed())
    houses.define(paused=True, pool="gpu")
    houses.settle()
    assert not houses.tasks["gpu"].state.paused


def test_a_changed_definition_and_a_deletion_reach_the_pool_and_the_same_again_does_not() -> None:
    houses = in_gpu()
    handed = [command for _, command in houses.log if isinstance(command, Hand)]
    houses.step(MAIN, Defined(replace(definition(pool="gpu")), restored=True))
    assert len([c for _, c in houses.log if isinstance(c, Hand)]) == len(handed)
    houses.define(pool="gpu", priority=1)
    houses.settle()
    assert houses.tasks["gpu"].definition.priority == 1  # type: ignore[union-attr]
    houses.step(MAIN, Deleted())
    houses.settle()
    assert houses.tasks["gpu"].definition is None
    houses.define(pool="gpu")
    houses.settle()
    houses.trigger("again")
    assert houses.start() == "gpu"


def test_defined_again_at_home_after_a_deletion_it_is_called_back_with_its_epoch() -> None:
    houses = in_gpu()
    houses.trigger("a")
    houses.start()
    houses.end()
    houses.step(MAIN, Deleted())
    houses.settle()
    houses.define()
    houses.settle()
    houses.trigger("b")
    assert houses.start() == MAIN
    assert houses.epochs == [("gpu", 1), (MAIN, 2)]


def test_an_answer_of_an_earlier_move_says_nothing() -> None:
    houses = in_gpu()
    before = houses.tasks[MAIN]
    houses.step(MAIN, Signalled(GaveBack(7, 99), 1000, TASK))
    assert houses.tasks[MAIN].state.place == before.state.place
    assert houses.tasks[MAIN].state.epoch == before.state.epoch


def test_a_large_request_keeps_a_record_of_its_own() -> None:
    houses = in_gpu()
    houses.step("gpu", Signalled(Carry(new_work(), size=3000), 50, TASK))
    put = [c.work for _, c in houses.log if isinstance(c, PutWork)][-1]
    assert put.own_record


def new_work() -> Any:
    from fencepost.core.task import Work

    return Work(9, "big", payload="x" * 2500)


ACTS = st.lists(
    st.sampled_from(
        ("home", "gpu", "big", "trigger", "start", "end", "fail", "lose", "read0", "read1", "read2", "time")
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(ACTS)
def test_in_any_order_nothing_runs_twice_no_epoch_comes_again_and_no_request_is_lost(acts: list[str]) -> None:
    houses = Houses()
    retry = Retry(attempts=2, delay_s=1.0, jitter=0.0)
    sent = 0
    for act in [*acts, "home" if "home" in acts else "gpu"]:
        if act in ("home", "gpu", "big"):
            houses.define(pool=None if act == "home" else act, retry=retry, buffer_limit=1000)
        elif act == "trigger":
            if houses.tasks[MAIN].definition is not None:
                sent += 1
                houses.trigger(f"t{sent}")
        elif act == "start":
            houses.start()
        elif act == "end":
            houses.end()
        elif act == "fail":
            houses.end(Outcome.FAILED)
        elif act == "lose":
            for pool in POOLS:
                run = houses.tasks[pool].state.run
                if run is not None:
                    houses.step(pool, Interrupted(run.epoch, Cause.HANDOVER))
        elif act == "time":
            houses.now_ms += 700
        else:
            houses.read(POOLS[int(act[-1])])
    for _ in range(8 * sent + 20):
        houses.settle()
        houses.end()
        houses.settle()
        if houses.start() is None:
            houses.now_ms += 5 * SECOND
            for pool in POOLS:
                if wake_at_ms(houses.tasks[pool]) is not None:
                    houses.step(pool, Woken())
    epochs = [epoch for _, epoch in houses.epochs]
    assert epochs == sorted(set(epochs))
    over = {
        command.fields["trigger"]
        for _, command in houses.log
        if isinstance(command, History) and (command.kind == "succeeded" or "given_up" in command.fields)
    }
    assert over == {f"t{number}" for number in range(1, sent + 1)}
    assert not any(houses.waiting(pool) for pool in POOLS)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.BACKOFF])
def test_what_is_deleted_at_home_while_it_is_away_does_not_hold_a_move_up(status: Status) -> None:
    houses = in_gpu(retry=Retry(attempts=2))
    houses.trigger("a")
    houses.start()
    if status is Status.BACKOFF:
        houses.end(Outcome.FAILED)
    houses.define(pool="big")
    houses.step(MAIN, Deleted())
    houses.settle()
    houses.end()
    houses.settle()
    houses.define(pool="big")
    houses.settle()
    assert houses.where() == "big"
    houses.trigger("b")
    assert houses.start() == "big"
    assert houses.epochs[-1][1] == 2


def test_where_a_task_is_is_never_forgotten() -> None:
    houses = in_gpu()
    houses.trigger("a")
    houses.start()
    houses.end()
    houses.define()
    houses.settle()
    for pool in (MAIN, "gpu"):
        assert houses.tasks[pool].state.place is not None
        assert not forgettable(houses.tasks[pool], houses.now_ms + 10**12, 1)


ACTS = st.one_of(
    st.tuples(st.just("define"), st.sampled_from(POOLS)),
    st.tuples(st.sampled_from(("trigger", "start", "fail", "end", "lose")), st.just("")),
    st.tuples(st.just("read"), st.sampled_from(POOLS)),
)


def as_numbered(houses: Houses) -> list[tuple[int, str | None]]:
    """Each run's number, which is its idempotency key, and its request."""
    return [(item.work.seq, item.work.trigger_id) for _, item in houses.log if isinstance(item, Launch)]


@settings(max_examples=150)
@given(st.lists(ACTS, min_size=5, max_size=40))
def test_a_number_names_one_request_and_a_request_has_one_number_wherever_they_move(
    acts: list[tuple[str, str]],
) -> None:
    houses, count, retry = Houses(), 0, Retry(attempts=3, delay_s=0.0)
    houses.define(retry=retry)
    for act, pool in acts:
        if act == "define":
            houses.define(retry=retry, pool=pool or None)
        elif act == "trigger":
            count += 1
            houses.trigger(f"r{count}")
        elif act == "start":
            houses.start()
        elif act == "read":
            houses.read(pool)
        elif act == "lose":
            for where in POOLS:
                run = houses.tasks[where].state.run
                if run is not None:
                    houses.step(where, Interrupted(run.epoch, Cause.LOST))
        else:
            houses.end(Outcome.FAILED if act == "fail" else Outcome.SUCCEEDED)
    for _ in range(3 * count + 1):
        houses.settle()
        for where in POOLS:
            houses.step(where, Woken())
        houses.start()
        houses.end()
        houses.now_ms += MINUTE
    runs = set(as_numbered(houses))
    assert len({number for number, _ in runs}) == len(runs), "one number for two requests"
    assert len({request for _, request in runs}) == len(runs) == count, "one request under two numbers"


def test_requests_that_ran_before_and_after_a_move_are_told_apart_by_their_numbers() -> None:
    houses = Houses()
    houses.define(retry=Retry(attempts=2, delay_s=0.0))
    for id in ("first", "home"):
        houses.end()
        houses.trigger(id)
        houses.start()
    houses.define(pool="gpu", retry=Retry(attempts=2, delay_s=0.0))
    houses.end(Outcome.FAILED)
    houses.settle()
    houses.trigger("there")
    for _ in range(2):
        houses.start()
        houses.end()
    assert as_numbered(houses) == [(1, "first"), (2, "home"), (2, "home"), (3, "there")]


def test_an_ask_for_a_limit_is_told_apart_from_one_before_the_move() -> None:
    """A grant that was on its way when the task left is handed on to the pool, where it was taken as its own."""
    houses = Houses()
    limit = Limit("db", max_runs=1)
    houses.tasks[MAIN], _ = step(houses.tasks[MAIN], Defined(definition(limit=limit)), T0)
    houses.tasks[MAIN], _ = step(houses.tasks[MAIN], Triggered(Trigger(TASK, "a", offset=1)), T0)
    before = houses.tasks[MAIN].state.permit
    houses.tasks[MAIN], moved = step(houses.tasks[MAIN], Defined(definition(limit=limit, pool="gpu")), T0)
    (handed,) = [item.definition for item in moved if isinstance(item, Hand)]
    (carry,) = [item.signal for item in moved if isinstance(item, Send) and isinstance(item.signal, Carry)]
    assert handed is not None
    gpu, _ = step(houses.tasks["gpu"], Defined(handed), T0)
    gpu, _ = step(gpu, Signalled(carry, 0, TASK), T0)
    assert before is not None
    assert gpu.state.permit is not None
    gpu, _ = step(gpu, Signalled(Grant(before.ticket), 1, "limit/db"), T0)
    assert not startable(gpu, T0)


def test_a_move_home_numbers_again_only_what_came_there_meanwhile() -> None:
    """A transaction has to hold them all a second time."""
    houses = in_gpu()
    for id in ("a", "b", "c"):
        houses.trigger(id)
    houses.start()
    houses.define()
    houses.step(MAIN, Triggered(Trigger(TASK, "d", offset=100)))
    houses.read("gpu")
    houses.end()
    houses.log.clear()
    houses.settle()
    assert [item.seq for where, item in houses.log if where == MAIN and isinstance(item, DropWork)] == [1]
    assert sorted(houses.waiting(MAIN), key=str) == ["b", "c", "d"]
