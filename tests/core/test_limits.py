"""Limits over many tasks: never more than allowed, in the order of asking, whoever dies, and nobody waits for ever."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.commands import DropClaim, History, PutClaim, PutGroup, Send
from fencepost.core.events import (
    Cancelled,
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
from fencepost.core.limits import Claim, Group, Limit, due_ms, granting, group_id, interval_ms
from fencepost.core.machine import new_task, restored_task, startable, step, why_not_startable
from fencepost.core.signals import Ask, GiveBack
from fencepost.core.task import Cause, Definition, Outcome, Overlap, PythonHandler, Retry, Status, Task
from tests.core.play import SECOND, T0, Play

KEY = group_id("db")


class Town:
    """Tasks that share a limit, the owner of its key, and the control records between them, each in its own order."""

    def __init__(self, limit: Limit, count: int, **fields: Any) -> None:
        self.names = [f"t{number}" for number in range(count)]
        self.tasks: dict[str, Task] = {name: new_task(name) for name in (*self.names, KEY)}
        self.mail: dict[str, deque[tuple[str, Any]]] = {name: deque() for name in (*self.names, KEY)}
        self.now_ms = T0
        self.offset = 0
        self.started: list[str] = []
        self.started_ms: list[int] = []
        self.kept: dict[int, Claim] = {}  # the records beside the state of the key
        self.next_ms = 0.0
        for name in self.names:
            self.step(name, Defined(Definition(name, PythonHandler("f"), limit=limit, **fields)))

    def step(self, name: str, event: Event) -> None:
        self.tasks[name], commands = step(self.tasks[name], event, self.now_ms)
        for command in commands:
            if isinstance(command, Send):
                self.mail[command.to_task].append((name, command.signal))
            elif isinstance(command, PutClaim):
                self.kept[command.claim.number] = command.claim
            elif isinstance(command, DropClaim):
                del self.kept[command.number]
            elif isinstance(command, PutGroup):
                self.next_ms = command.next_ms

    def trigger(self, name: str) -> None:
        self.offset += 1
        self.step(name, Triggered(Trigger(name, f"id{self.offset}", offset=self.offset)))

    def deliver(self, name: str) -> bool:
        if not self.mail[name]:
            return False
        sender, signal = self.mail[name].popleft()
        self.offset += 1
        self.step(name, Signalled(signal, self.offset, sender))
        return True

    def settle(self) -> None:
        while any(self.deliver(name) for name in self.mail):
            continue

    def start(self, name: str) -> bool:
        if not startable(self.tasks[name], self.now_ms):
            return False
        self.step(name, Started("lane", "nonce", 15.0))
        self.started.append(name)
        self.started_ms.append(self.now_ms)
        return True

    def end(self, name: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        run = self.tasks[name].state.run
        if run is not None:
            self.step(name, Ended(run.epoch, outcome, error=None if outcome is Outcome.SUCCEEDED else "boom"))

    def lose(self, name: str) -> None:
        """Its owner died; the next one reads its records, and records the end."""
        run = self.tasks[name].state.run
        if run is not None:
            self.step(name, Interrupted(run.epoch, Cause.LOST))

    def take_over(self, name: str) -> None:
        """Another owner, which has the records and nothing else."""
        task = self.tasks[name]
        if name != KEY:
            again = restored_task(task.state, task.waiting)
            self.tasks[name] = again
            assert task.definition is not None
            self.step(name, Defined(task.definition, restored=True))
            return
        claims = tuple(self.kept[number] for number in sorted(self.kept))
        assert task.group is None or claims == task.group.claims
        if task.group is not None:
            self.tasks[name] = restored_task(task.state, group=Group(claims, self.next_ms))

    def running(self) -> list[str]:
        return [name for name in self.names if self.tasks[name].state.status is Status.RUNNING]

    def wake_all(self) -> None:
        """As timers do that were set before; too often is harmless."""
        for name in self.tasks:
            self.step(name, Woken())


def test_no_more_than_allowed_run_and_the_next_in_line_follows() -> None:
    town = Town(Limit("db", max_runs=2), 4)
    for name in town.names:
        town.trigger(name)
        assert not town.start(name)
        town.settle()
    assert [town.start(name) for name in town.names] == [True, True, False, False]
    assert why_not_startable(town.tasks["t2"], town.now_ms) == "its limit is reached"
    town.end("t1")
    town.settle()
    assert [town.start(name) for name in ("t3", "t2")] == [False, True]
    town.lose("t0")  # whoever records that it is gone gives it back
    town.settle()
    assert town.start("t3")


def test_a_run_that_is_tried_again_asks_again_behind_those_who_wait() -> None:
    town = Town(Limit("db", max_runs=1), 2, retry=Retry(attempts=2, delay_s=1.0, jitter=0.0))
    town.trigger("t0")
    town.settle()
    town.start("t0")
    town.trigger("t1")
    town.end("t0", Outcome.FAILED)
    town.settle()
    town.now_ms += SECOND
    town.wake_all()
    town.settle()
    assert [town.start(name) for name in ("t0", "t1")] == [False, True]
    town.end("t1")
    town.settle()
    assert town.start("t0")


@pytest.mark.parametrize("event", [Cancelled(), Paused(), Deleted()], ids=lambda event: type(event).__name__)
def test_a_task_that_does_not_want_to_start_any_more_gives_back_what_it_asked_for(event: Event) -> None:
    town = Town(Limit("db", max_runs=1), 2)
    for name in town.names:
        town.trigger(name)
        town.settle()
    town.step("t0", event)
    town.settle()
    assert (town.start("t0"), town.start("t1")) == (False, True)
    assert [claim.task for claim in town.kept.values()] == ["t1"]


def test_a_grant_that_comes_after_it_was_given_back_starts_nothing() -> None:
    town = Town(Limit("db", max_runs=1), 2)
    town.trigger("t0")
    town.deliver(KEY)  # granted, and on its way
    town.step("t0", Paused())
    town.trigger("t1")
    town.step("t0", Resumed())  # asks again, under another ticket
    town.deliver("t0")
    assert not town.start("t0")
    town.settle()
    assert town.start("t1")
    assert not town.start("t0")


def test_another_limit_is_asked_for_anew_and_the_strictest_counts() -> None:
    town = Town(Limit("db", max_runs=3), 3)
    for name in town.names:
        town.trigger(name)
    town.settle()
    definition = town.tasks["t0"].definition
    assert definition is not None
    town.step("t0", Defined(replace(definition, limit=Limit("db", max_runs=1))))
    town.settle()
    assert [town.start(name) for name in town.names] == [False, True, True]
    town.step("t1", Defined(replace(definition, task="t1", limit=None)))
    for name in ("t1", "t2"):
        town.end(name)
    town.settle()
    assert town.start("t0")


def test_a_rate_spreads_starts_and_lets_a_burst_go_after_a_rest() -> None:
    town = Town(Limit("db", rate="2/s", burst=2), 6)
    for name in town.names:
        town.trigger(name)
    for _ in range(400):
        town.settle()
        for name in town.names:
            if town.start(name):
                town.end(name)
        town.now_ms += 10
        town.wake_all()
    assert town.started == town.names
    assert [at_ms - T0 for at_ms in town.started_ms] == [0, 0, 500, 1000, 1500, 2000]


@pytest.mark.parametrize(("rate", "apart_ms"), [("10/s", 100), ("100/m", 600), ("5/10m", 120_000), ("1/d", 86_400_000)])
def test_rates(rate: str, apart_ms: float) -> None:
    assert interval_ms(rate) == apart_ms


@pytest.mark.parametrize("rate", ["", "10", "0/s", "10/0s", "ten/s", "-1/s", "10/s ", "10/y", "1.5/s"])
def test_what_is_no_rate_is_refused(rate: str) -> None:
    with pytest.raises(ValueError, match="allowed: runs per time"):
        interval_ms(rate)


LIMITS = st.builds(
    Limit, st.just("db"), st.none() | st.integers(1, 3), st.none() | st.sampled_from(["1/s", "7/s"]), st.integers(1, 3)
)


@given(st.lists(st.tuples(LIMITS, st.booleans()), max_size=8), st.integers(0, 3000))
def test_what_is_granted_is_within_the_strictest_and_in_the_order_of_asking(
    asked: list[tuple[Limit, bool]], next_ms: int
) -> None:
    claims = tuple(Claim(n, f"t{n}", 1, limit, 0, held) for n, (limit, held) in enumerate(asked, 1))
    group, granted = granting(Group(claims, float(next_ms)), 1000)
    most = min((limit.max_runs for limit, _ in asked if limit.max_runs is not None), default=None)
    if granted and most is not None:
        assert sum(claim.granted for claim in group.claims) <= most
    waiting = [claim.number for claim in claims if not claim.granted]
    assert [claim.number for claim in granted] == waiting[: len(granted)]
    again = due_ms(group)
    if again is not None:
        assert again > 1000
        assert granting(group, again)[1]
        assert not granting(group, again - 1)[1]


NAMES = st.integers(0, 4).map(lambda number: f"t{number}")
ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ("trigger", "trigger", "deliver", "deliver", "key", "key", "start", "end", "fail", "lose", "cancel",
             "pause", "resume", "over", "key over", "time")
        ),
        NAMES,
    ),
    max_size=120,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ACTS, st.integers(1, 3), st.sampled_from([Overlap.BUFFER_ALL, Overlap.CANCEL, Overlap.SKIP]))
def test_over_any_order_of_asks_grants_returns_and_takeovers_the_limit_holds_and_all_get_their_turn(
    acts: list[tuple[str, str]], most: int, overlap: Overlap
) -> None:
    town = Town(Limit("db", most), 5, retry=Retry(attempts=2, delay_s=0.5, jitter=0.0), overlap=overlap)
    for act, name in acts:
        if act == "trigger":
            town.trigger(name)
        elif act == "deliver":
            town.deliver(name)
        elif act == "key":
            town.deliver(KEY)
        elif act == "start":
            town.start(name)
        elif act == "end":
            town.end(name)
        elif act == "fail":
            town.end(name, Outcome.FAILED)
        elif act == "lose":
            town.lose(name)
        elif act == "over":
            if town.tasks[name].state.status is not Status.RUNNING:
                town.take_over(name)
        elif act == "key over":
            town.take_over(KEY)
        elif act == "time":
            town.now_ms += 300
            town.wake_all()
        else:
            town.step(name, {"cancel": Cancelled(), "pause": Paused(), "resume": Resumed()}[act])
        assert len(town.running()) <= most
    for name in town.names:
        town.step(name, Resumed())
    for _ in range(400):
        town.settle()
        for name in town.names:
            town.start(name)
        assert len(town.running()) <= most
        for name in town.running():
            town.end(name)
        town.settle()
        if all(task.state.status is Status.IDLE and not task.waiting for task in town.tasks.values()):
            break
        town.now_ms += 600
        town.wake_all()
    assert town.kept == {}
    assert all(not task.waiting and task.state.permit is None for task in town.tasks.values())


def test_tasks_without_a_limit_say_nothing_of_it() -> None:
    task, commands = step(new_task("t"), Defined(Definition("t", PythonHandler("f"))), T0)
    task, more = step(task, Triggered(Trigger("t", offset=1)), T0)
    assert not any(isinstance(command, Send) for command in (*commands, *more))
    assert not any(command.kind == "asked" for command in more if isinstance(command, History))
    assert startable(task, T0)


def test_a_key_that_nobody_holds_or_waits_for_leaves_nothing_in_memory_as_none_is_on_record() -> None:
    play = Play()
    play.signal(Ask(1, max_runs=1), sender="t", offset=0)
    assert play.task.group is not None
    play.signal(GiveBack(1), sender="t", offset=1)
    assert play.task.group is None


def test_delayed_work_that_was_admitted_keeps_its_place_in_line_over_a_takeover() -> None:
    town = Town(Limit("db", max_runs=1), 3)
    for name in ("t0", "t1", "t2"):
        if name == "t1":
            town.step(name, Triggered(Trigger(name, name, delay_ms=SECOND, offset=100)))
            town.now_ms += SECOND
            town.step(name, Woken())
        else:
            town.trigger(name)
        town.settle()
    assert town.start("t0")
    asked = [claim.number for claim in town.kept.values() if claim.task == "t1"]
    town.take_over("t1")
    assert (town.tasks["t1"].waiting, len(town.tasks["t1"].delayed)) == ((), 1)
    town.settle()
    town.end("t0")
    town.settle()
    assert not town.start("t1")  # nothing of it is due until it is woken, and that is at once
    town.step("t1", Woken())
    town.settle()
    assert [claim.number for claim in town.kept.values() if claim.task == "t1"] == asked
    assert (town.start("t2"), town.start("t1")) == (False, True)


def test_delayed_work_of_a_task_that_was_paused_meanwhile_gives_its_place_back() -> None:
    town = Town(Limit("db", max_runs=1), 1)
    town.step("t0", Triggered(Trigger("t0", "x", delay_ms=SECOND, offset=100)))
    town.now_ms += SECOND
    town.step("t0", Woken())
    town.settle()
    task = town.tasks["t0"]
    assert task.definition is not None
    town.tasks["t0"] = restored_task(task.state, task.waiting)
    town.step("t0", Defined(replace(task.definition, paused=True), restored=True))
    town.settle()
    assert town.kept == {}
