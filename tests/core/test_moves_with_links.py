"""Tasks of pools that run after others, or in shards: what decides stays with the namespace, only runs move."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.codec import dumps
from fencepost.core.commands import Ask, Command, Define, Hand, History, Send
from fencepost.core.events import (
    Cancelled,
    Defined,
    Deleted,
    Ended,
    Event,
    Paused,
    Resumed,
    Signalled,
    Started,
    Triggered,
    Woken,
)
from fencepost.core.links import Links
from fencepost.core.machine import new_task, restored_task, startable, step, wake_at_ms
from fencepost.core.place import MAIN
from fencepost.core.signals import (
    Carry,
    GaveBack,
    ShardDone,
    Subscribe,
    TellChildren,
    Unsubscribe,
    UpstreamDone,
    UpstreamMissed,
)
from fencepost.core.task import Definition, Outcome, Overlap, PythonHandler, Retry, Status, Task
from fencepost.wire.control import encode_signal, read_control
from fencepost.wire.definition import encode_definition, read_definition
from fencepost.wire.links import decode_join, decode_links, encode_join, encode_links
from fencepost.wire.trigger import encode_asked, read_trigger
from tests.core.play import SECOND, T0

POOLS = (MAIN, "gpu", "big")
Place = tuple[str, str]  # (pool, task)


class Country:
    """A namespace and two pools, with several tasks. Records lie in three topics of each, and are read by `read`.

    As the intake does, the owner in the namespace hands on what is for a pool, but not what it joins and gathers.
    """

    def __init__(self) -> None:
        self.tasks: dict[Place, Task] = {}
        self.topics: dict[tuple[str, str, str], deque[bytes | None]] = {}  # (topic, pool, task)
        self.given: dict[Place, Definition | None] = {}  # what the topic of tasks says last
        self.log: list[tuple[Place, Command]] = []
        self.now_ms = T0
        self.offset = 0
        self.epochs: dict[str, list[int]] = {}

    # -- topics --

    def produce(self, topic: str, pool: str, name: str, value: bytes | None) -> None:
        self.topics.setdefault((topic, pool, name), deque()).append(value)

    def define(self, name: str, **fields: Any) -> None:
        value = encode_definition(Definition(name, PythonHandler(name), **fields))
        self.produce("tasks", MAIN, name, value)
        self.read(MAIN)

    def trigger(self, name: str, id: str, **fields: Any) -> None:
        self.produce("triggers", MAIN, name, dumps({"id": id, **fields}))

    def read(self, pool: str) -> None:
        """Definitions before control records before triggers, of every task."""
        for topic, take in (("tasks", self._defined), ("control", self._told), ("triggers", self._triggered)):
            for (of, where, name), records in list(self.topics.items()):
                while (of, where) == (topic, pool) and records:
                    take((pool, name), records.popleft())

    def settle(self) -> None:
        while any(self.topics.values()):
            for pool in POOLS:
                self.read(pool)

    def _defined(self, place: Place, value: bytes | None) -> None:
        _, definition = read_definition(place[1].encode(), value)
        self.given[place] = definition
        self.step(place, Deleted() if definition is None else Defined(definition))

    def _told(self, place: Place, value: bytes | None) -> None:
        self.offset += 1
        _, event = read_control(place[1].encode(), value, self.offset)
        assert isinstance(event, Signalled)
        elsewhere = self._elsewhere(place)
        moves = isinstance(event.signal, Subscribe) and event.signal.number > 0
        between = moves or isinstance(event.signal, Carry | GaveBack | TellChildren)
        joined = isinstance(event.signal, UpstreamDone | UpstreamMissed | ShardDone) and place[0] == MAIN
        if elsewhere is None or between or joined:
            self.step(place, event)
        else:
            self.produce("control", elsewhere, place[1], value)

    def _triggered(self, place: Place, value: bytes | None) -> None:
        self.offset += 1
        elsewhere = self._elsewhere(place)
        known = self.task(place).state.place
        if elsewhere is None or (known is not None and known.recalled):
            self.step(place, Triggered(read_trigger(place[1].encode(), value, None, self.offset, 0)))
        else:
            self.produce("triggers", elsewhere, place[1], value)

    def _elsewhere(self, place: Place) -> str | None:
        known = self.task(place).state.place
        return None if known is None or not known.away else known.pool or MAIN

    # -- steps --

    def task(self, place: Place) -> Task:
        return self.tasks.get(place) or new_task(place[1])

    def step(self, place: Place, event: Event) -> None:
        pool, name = place
        self.tasks[place], commands = step(self.task(place), event, self.now_ms)
        for command in commands:
            self.log.append((place, command))
            if isinstance(command, Hand):
                handed = None if command.definition is None else encode_definition(command.definition)
                self.produce("tasks", command.pool, name, handed)
            elif isinstance(command, Send):
                value = encode_signal(command.sender or name, command.signal, "lane", "nonce")
                self.produce("control", command.pool or MAIN, command.to_task, value)
            elif isinstance(command, Ask):
                assert pool == MAIN, "requests are made parts of in the namespace alone"
                self.produce("triggers", pool, command.trigger.task, encode_asked(command.trigger))
            elif isinstance(command, Define):
                value_ = None if command.definition is None else encode_definition(command.definition)
                self.produce("tasks", pool, command.to_task, value_)

    def start(self, name: str) -> str | None:
        able = [pool for pool in POOLS if startable(self.task((pool, name)), self.now_ms)]
        running = [pool for pool in POOLS if self.task((pool, name)).state.status is Status.RUNNING]
        assert len(able) + len(running) <= 1, (name, able, running)
        if not able:
            return None
        place = (able[0], name)
        before = self.task(place).state.epoch
        self.step(place, Started("lane", "nonce", 15.0))
        if self.task(place).state.epoch > before:  # else it became requests of its shards
            self.epochs.setdefault(name, []).append(self.task(place).state.epoch)
        return able[0]

    def end(self, name: str, outcome: Outcome = Outcome.SUCCEEDED, result: Any = None) -> None:
        for pool in POOLS:
            run = self.task((pool, name)).state.run
            if run is not None:
                self.step((pool, name), Ended(run.epoch, outcome, result))

    def take_over(self, place: Place) -> None:
        """The task as its next owner reads it."""
        task = self.task(place)
        links = task.links or Links()
        joins = [decode_join(encode_join(place[1], join, "l", "n")) for join in links.joins]
        kept = None if links.empty else decode_links(encode_links(place[1], links, "l", "n"))
        works = [*task.waiting, *task.delayed]
        self.tasks[place] = restored_task(task.state, works, task.checkpoint, kept, joins, links.fans)
        definition = self.given.get(place)
        if definition is not None:
            self.step(place, Defined(definition, restored=True))

    def run_all(self) -> list[tuple[str, str]]:
        """Until nothing can start and nothing is on its way; (task, pool) of what ran, in its order."""
        ran = []
        for _ in range(10_000):
            self.settle()
            names = sorted({name for _, name in self.tasks})
            for name in names:
                self.end(name)
            self.settle()
            started = [(name, pool) for name in names if (pool := self.start(name)) is not None]
            ran += started
            if not started and not any(self.topics.values()):
                self.now_ms += 5 * SECOND
                waking = [place for place, task in self.tasks.items() if wake_at_ms(task) is not None]
                for place in waking:
                    self.step(place, Woken())
                if not waking:
                    return ran
        raise AssertionError("it never comes to an end")

    # -- looking --

    def told(self, name: str, kind: str, pool: str | None = None) -> list[dict[str, Any]]:
        return [
            command.fields
            for (where, task), command in self.log
            if task == name and isinstance(command, History) and command.kind == kind and pool in (None, where)
        ]

    def cycles(self, name: str, kind: str) -> list[str]:
        return sorted(fields["cycle"] for fields in self.told(name, kind) if "cycle" in fields)

    def links(self, pool: str, name: str) -> Links:
        return self.task((pool, name)).links or Links()


def country(**tasks: dict[str, Any]) -> Country:
    made = Country()
    for name, fields in tasks.items():
        made.define(name, **fields)
    made.settle()
    return made


def test_the_cycles_of_a_task_in_a_pool_are_joined_at_home_and_run_there() -> None:
    all_ = country(a={}, b={}, c={"after": ("a", "b"), "pool": "gpu"}, d={"after": ("c",)})
    assert (all_.links(MAIN, "c").parents, all_.links(MAIN, "c").children) == (("a", "b"), ())
    assert all_.links("gpu", "c").children == ("d",)
    all_.trigger("a", "1", cycle="week")
    assert [name for name, _ in all_.run_all()] == ["a"]
    assert [join.cycle for join in all_.links(MAIN, "c").joins] == ["week"]
    all_.trigger("b", "2", cycle="week")
    assert all_.run_all() == [("b", MAIN), ("c", "gpu"), ("d", MAIN)]
    assert all_.told("c", "moved")[-1] == {"cycle": "week", "to": "gpu"}
    work = next(c.signal.work for _, c in all_.log if isinstance(c, Send) and isinstance(c.signal, Carry))
    assert work.origin is not None
    assert {parent: end["outcome"] for parent, end in (work.origin.upstream or {}).items()} == {
        "a": "succeeded", "b": "succeeded",
    }  # fmt: skip


def test_a_skip_is_told_at_home_and_passed_on_by_the_pool_once() -> None:
    all_ = country(a={}, c={"after": ("a",), "pool": "gpu"}, d={"after": ("c",), "when": "all_done"})
    all_.trigger("a", "1")
    all_.settle()
    all_.start("a")
    all_.end("a", Outcome.FAILED)
    assert all_.run_all() == [("d", MAIN)]
    assert all_.told("c", "skipped") == [{"cycle": "run:a/1", "from": "a", "cause": "upstream failed"}]
    told = [c.signal for _, c in all_.log if isinstance(c, Send) and isinstance(c.signal, UpstreamDone)]
    assert [(signal.outcome, signal.path) for signal in told] == [("failed", ("a",)), ("skipped", ("a", "c"))]
    all_.trigger("a", "again", cycle="run:a/1")  # as a dead letter that is replayed
    assert all_.run_all() == [("a", MAIN), ("c", "gpu")]


def test_a_parent_in_a_pool_tells_a_child_in_another() -> None:
    all_ = country(a={"pool": "big"}, b={"pool": "gpu", "after": ("a",)})
    all_.trigger("a", "1")
    assert all_.run_all() == [("a", "big"), ("b", "gpu")]


@pytest.mark.parametrize("to", [None, "big"])
def test_those_who_run_after_a_task_are_where_it_is_before_it_can_run_there(to: str | None) -> None:
    all_ = country(a={"pool": "gpu"}, b={"after": ("a",)})
    all_.define("a", pool=to)
    all_.trigger("a", "1")
    all_.read("gpu")
    all_.read(MAIN)
    if to is not None:
        all_.read(to)
    assert all_.start("a") == (to or MAIN)
    all_.end("a")
    all_.read(to or MAIN)
    assert all_.run_all() == [("b", MAIN)]


def test_those_who_run_after_a_task_follow_one_that_has_gone_on() -> None:
    all_ = country(a={"pool": "gpu"}, b={"after": ("a",)})
    for pool in (None, "gpu", "big", None, "gpu"):
        all_.define("a", pool=pool)
        all_.settle()
        where = {place: all_.links(place, "a").children for place in POOLS}
        assert where == {place: ("b",) if place == (pool or MAIN) else () for place in POOLS}
        late = encode_signal("late", Subscribe(1), "lane", "nonce")  # of a move that is long over
        all_.produce("control", MAIN, "a", late)
        all_.settle()
        assert all_.links(pool or MAIN, "a").children == ("b", "late")
        all_.produce("control", MAIN, "a", encode_signal("late", Unsubscribe(), "lane", "nonce"))
        all_.settle()


def test_the_overlap_policy_of_the_pool_decides_on_a_cycle_and_those_after_it_are_told() -> None:
    all_ = country(
        a={}, b={"pool": "gpu", "after": ("a",), "overlap": Overlap.SKIP}, c={"after": ("b",), "when": "all_done"}
    )
    for id in ("1", "2"):
        all_.trigger("a", id)
        all_.settle()
        all_.start("a")
        all_.end("a")
        all_.settle()
        all_.start("b")
    assert all_.told("b", "skipped", "gpu") == [{"cycle": "run:a/2", "cause": "overlap"}]
    assert all_.run_all() == [("c", MAIN), ("c", MAIN)]
    assert all_.cycles("c", "started") == ["run:a/1", "run:a/2"]


@pytest.mark.parametrize("to", [None, "big"])
def test_open_joins_stay_at_home_whatever_the_pool(to: str | None) -> None:
    fields: dict[str, Any] = {"after": ("a", "b")}
    all_ = country(a={}, b={}, c={**fields, "pool": "gpu"})
    all_.trigger("a", "1", cycle="one")
    all_.run_all()
    all_.define("c", **fields, pool=to)
    all_.settle()
    all_.take_over((MAIN, "c"))
    all_.trigger("b", "2", cycle="one")
    assert all_.run_all()[-1] == ("c", to or MAIN)
    assert all_.cycles("c", "started") == ["one"]


def test_a_task_with_open_joins_moves_into_a_pool() -> None:
    all_ = country(a={}, b={}, c={"after": ("a", "b")})
    all_.trigger("a", "1", cycle="one")
    all_.run_all()
    all_.define("c", after=("a", "b"), pool="gpu")
    assert [join.cycle for join in all_.links(MAIN, "c").joins] == ["one"]
    all_.trigger("b", "2", cycle="one")
    assert all_.run_all()[-1] == ("c", "gpu")


def test_what_it_runs_after_can_change_while_it_is_away() -> None:
    all_ = country(a={}, b={}, c={"after": ("a", "b"), "pool": "gpu"})
    all_.trigger("a", "1")
    all_.run_all()
    all_.define("c", after=("a",), pool="gpu")
    assert all_.run_all() == [("c", "gpu")]
    assert (all_.links(MAIN, "a").children, all_.links(MAIN, "b").children) == (("c",), ())
    all_.define("c", after=("b",), pool="gpu")
    all_.trigger("b", "2")
    assert all_.run_all() == [("b", MAIN), ("c", "gpu")]


def test_a_task_deleted_while_away_closes_its_cycles_and_those_after_it_hear_of_them() -> None:
    all_ = country(a={}, b={}, c={"after": ("a", "b"), "pool": "gpu"}, d={"after": ("c",), "when": "all_done"})
    all_.trigger("a", "1", cycle="one")
    all_.run_all()
    all_.produce("tasks", MAIN, "c", None)
    assert all_.run_all() == [("d", MAIN)]
    assert all_.links(MAIN, "c") == Links()
    assert all_.links(MAIN, "a").children == ()
    assert all_.told("c", "skipped", MAIN) == [{"cycle": "one", "cause": "deleted"}]


def test_a_request_that_moves_after_its_task_was_deleted_is_told_to_those_after_it() -> None:
    all_ = country(a={}, b={"after": ("a",), "pool": "gpu"}, c={"after": ("b",), "when": "all_done"})
    all_.trigger("a", "1")
    all_.read(MAIN)
    all_.start("a")
    all_.end("a")
    all_.read(MAIN)  # the request of b is on its way to the pool
    all_.produce("tasks", MAIN, "b", None)
    assert all_.run_all() == [("c", MAIN)]
    assert all_.told("b", "skipped") == [{"cycle": "run:a/1", "cause": "deleted"}]


def test_a_task_that_fans_out_stays_and_its_shards_run_in_the_pool() -> None:
    all_ = country(a={"shards": 3, "pool": "gpu"}, b={"after": ("a",)})
    assert all_.task((MAIN, "a")).state.place is None
    all_.trigger("a", "1", payload=7)
    ran = all_.run_all()
    assert ran == [("a", MAIN), *[(f"a/shard/{number}", "gpu") for number in range(3)], ("b", MAIN)]
    assert all_.told("a", "gathered")[0]["outcome"] == "succeeded"
    shard = all_.given["gpu", "a/shard/1"]
    assert shard is not None
    assert (shard.shard_of, shard.pool, shard.shards) == ("a", "gpu", 0)


def test_shards_follow_the_pool_of_the_task_they_are_part_of() -> None:
    all_ = country(a={"shards": 2, "pool": "gpu"})
    all_.trigger("a", "1")
    all_.run_all()
    all_.define("a", shards=2, pool="big")
    all_.trigger("a", "2")
    assert all_.run_all() == [("a", MAIN), ("a/shard/0", "big"), ("a/shard/1", "big")]
    all_.define("a", shards=2)
    all_.trigger("a", "3")
    assert all_.run_all() == [("a", MAIN), ("a/shard/0", MAIN), ("a/shard/1", MAIN)]
    assert all_.epochs == {"a/shard/0": [1, 2, 3], "a/shard/1": [1, 2, 3]}


def test_a_task_in_a_pool_that_is_to_fan_out_comes_home_first() -> None:
    all_ = country(z={}, a={"pool": "gpu", "after": ("z",)})
    all_.trigger("z", "1")
    assert all_.run_all() == [("z", MAIN), ("a", "gpu")]
    all_.define("a", pool="gpu", after=("z",), map="z")
    all_.trigger("z", "2")
    all_.settle()
    all_.start("z")
    all_.end("z", result=["x", "y"])
    assert all_.run_all() == [("a", MAIN), ("a/shard/0", "gpu"), ("a/shard/1", "gpu")]
    all_.define("a", pool="gpu", after=("z",))
    all_.trigger("z", "3")
    assert all_.run_all() == [("z", MAIN), ("a", "gpu")]
    assert all_.epochs["a"] == [1, 2]


def test_a_cancelled_request_is_cancelled_for_its_shards_wherever_they_go() -> None:
    all_ = country(a={"shards": 2, "pool": "gpu"}, b={"after": ("a",), "when": "all_done"})
    all_.trigger("a", "1")
    all_.run_all()
    all_.trigger("a", "2")
    all_.settle()
    all_.start("a")
    all_.settle()
    assert all_.start("a/shard/0") == "gpu"
    all_.step((MAIN, "a"), Cancelled(all_.offset + 1, "no need"))
    all_.settle()
    assert all_.task(("gpu", "a/shard/0")).state.run.stopping == "cancelled"  # type: ignore[union-attr]
    all_.end("a/shard/0")
    all_.define("a", shards=2)
    assert all_.run_all() == [("b", MAIN)]
    assert {all_.task((MAIN, f"a/shard/{number}")).state.cancelled_to for number in range(2)} == {2}
    assert all_.epochs["a/shard/1"] == [1]


def test_what_is_said_of_a_pause_while_the_task_comes_back_counts_in_the_order_in_which_it_was_said() -> None:
    all_ = country(a={"pool": "gpu"})

    def say(event: Event) -> None:
        all_.offset += 1
        all_.step((MAIN, "a"), replace(event, offset=all_.offset))  # type: ignore[call-arg]

    all_.define("a")
    say(Paused(reason="lunch"))
    all_.settle()
    assert (all_.task((MAIN, "a")).state.paused, all_.task((MAIN, "a")).state.pause_reason) == (True, "lunch")
    say(Resumed())
    say(Paused(late=True))  # said before, and back from the pool only now
    assert not all_.task((MAIN, "a")).state.paused
    assert [fields["cause"] for fields in all_.told("a", "skipped", MAIN)] == [
        "pause: it was said otherwise here since, as the task moved"
    ]
    all_.define("a", pool="gpu")
    all_.settle()
    all_.step(("gpu", "a"), Paused(all_.offset))
    all_.define("a")
    all_.settle()
    assert all_.task((MAIN, "a")).state.paused  # nobody said anything else here
    say(Resumed(late=True))
    assert not all_.task((MAIN, "a")).state.paused


def test_a_word_of_a_task_that_is_not_defined_is_told_once_over_a_takeover() -> None:
    all_ = country(a={}, b={"after": ("a",)})
    all_.produce("tasks", MAIN, "b", None)
    all_.read(MAIN)
    event = Signalled(UpstreamDone("one", "succeeded"), all_.offset + 1, "a")
    for _ in range(2):
        all_.step((MAIN, "b"), event)
        all_.take_over((MAIN, "b"))
    assert len(all_.told("b", "skipped")) == 1


NAMES = ("a", "b", "c")
ACTS = st.lists(
    st.tuples(
        st.sampled_from(("home", "gpu", "big", "trigger", "start", "end", "fail", "read", "takeover", "time")),
        st.sampled_from(NAMES),
        st.sampled_from(POOLS),
    ),
    max_size=70,
)


@settings(max_examples=400, deadline=None)
@given(ACTS)
def test_whatever_moves_whenever_each_cycle_becomes_one_request_or_one_skip(acts: list[tuple[str, str, str]]) -> None:
    chain: dict[str, dict[str, Any]] = {"a": {}, "b": {"after": ("a",)}, "c": {"after": ("b",), "when": "all_done"}}
    common: dict[str, Any] = {"retry": Retry(attempts=1), "buffer_limit": 1000}
    all_ = country(**{name: {**fields, **common} for name, fields in chain.items()})
    sent = 0
    for act, name, pool in acts:
        if act in ("home", "gpu", "big"):
            all_.define(name, **chain[name], **common, pool=None if act == "home" else act)
        elif act == "trigger":
            sent += 1
            all_.trigger("a", f"t{sent}")
        elif act == "start":
            all_.start(name)
        elif act in ("end", "fail"):
            all_.end(name, Outcome.SUCCEEDED if act == "end" else Outcome.FAILED)
        elif act == "time":
            all_.now_ms += 700
        elif act == "takeover":
            all_.take_over((pool, name))
        else:
            all_.read(pool)
    all_.run_all()
    cycles = sorted(f"run:a/t{number}" for number in range(1, sent + 1))
    failed = {f"run:a/{fields['trigger']}" for fields in all_.told("a", "failed")}
    assert all_.cycles("b", "started") == [cycle for cycle in cycles if cycle not in failed]
    assert all_.cycles("b", "skipped") == sorted(failed)
    assert all_.cycles("c", "started") == cycles
    assert all_.cycles("c", "skipped") == []
    for epochs in all_.epochs.values():
        assert epochs == sorted(set(epochs))
    for place, task in all_.tasks.items():
        assert not task.waiting, place
        assert not (task.links or Links()).joins or place == (MAIN, "b"), place
