"""What one task's owner tells another's, as it arrives at a lane on a real broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.codec import loads
from fencepost.core.fans import shard_id
from fencepost.core.ids import side_key
from fencepost.core.links import MAX_SHARDS
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Driven, World, a_task, make_lane, only_classic, running


def a_lane(world: World, *defined: str) -> Driven:
    return make_lane(world, runners=FakeRunners(at_once=succeed), tasks=[a_task(name) for name in defined])


def subscribe(world: World, parent: str, child: str, kind: str = "subscribe") -> None:
    world.produce([(world.topics.control, parent, {"op": "signal", "signal": {"kind": kind}, "from": child})])


def links(world: World, task: str) -> Any:
    """The newest committed links record; None: a tombstone, or none."""
    key, newest = side_key(task, "links", 0).encode(), None
    for record in world.records(world.topics.state, world.partition(task)):
        if record.key == key:
            newest = None if record.value is None else loads(record.value)
    return newest


def children(world: World, task: str) -> list[str]:
    body = links(world, task)
    return [] if body is None else list(body.get("children", []))


def no_letters(world: World) -> bool:
    return not world.records(world.topics.dead_letter)


def test_a_parent_keeps_its_children_over_a_takeover_and_takes_each_signal_once(world: World) -> None:
    parent = world.task_on(0)
    first, second = a_lane(world, parent), a_lane(world, parent)
    with running(first):
        for child in ("b", "a", "b"):
            subscribe(world, parent, child)
        first.wait("both are kept", lambda: children(world, parent) == ["b", "a"])
    with running(second):
        subscribe(world, parent, "b", "unsubscribe")
        second.wait("one went", lambda: children(world, parent) == ["a"])
        subscribe(world, parent, "a", "unsubscribe")
        second.wait("nobody is left", lambda: links(world, parent) is None)
    assert no_letters(world)


@only_classic
def test_an_id_that_is_not_defined_yet_keeps_who_asked_and_is_no_task_for_that(world: World) -> None:
    parent, child = world.task_on(1), world.task_on(2)
    first, second = (
        make_lane(world, runners=FakeRunners(at_once=succeed), tasks=[a_task(child, after=(parent,))]) for _ in "12"
    )
    with running(first):
        first.wait("it is kept", lambda: children(world, parent) == [child])
    with running(second):
        second.wait("all held", second.holds_all)
        world.trigger(parent)
        second.wait("refused", lambda: world.history(parent))
        world.produce([(world.topics.tasks, parent, {"handler": {"kind": "python", "function": "work"}})])
        world.trigger(parent)
        second.wait("it ran", lambda: second.runners.starts_of(parent) == [1])
        second.wait("and so did its child", lambda: second.runners.starts_of(child) == [1])
    assert children(world, parent) == [child]
    refused = world.history(parent)[0]
    assert (refused["kind"], refused["cause"]) == ("skipped", "not defined")
    assert "deleted" not in [body["kind"] for body in world.history(parent)]


@only_classic
def test_what_is_asked_of_a_task_right_after_it_was_defined_is_no_dead_letter(world: World) -> None:
    """The definitions are read to their end first, as for a trigger."""
    lane = a_lane(world)
    defined = {"handler": {"kind": "python", "function": "work"}}
    tasks = [world.task_on(partition, number) for partition in range(4) for number in range(5)]
    with running(lane):
        lane.wait("all held", lane.holds_all)
        for task in tasks:
            world.produce([(world.topics.tasks, task, defined), (world.topics.control, task, {"op": "pause"})])
        lane.wait("all are paused", lambda: all((world.state(task) or {}).get("paused") for task in tasks))
        world.produce([(world.topics.control, "nobody", {"op": "pause"})])
        lane.wait("one of nobody is a dead letter", lambda: not no_letters(world))
    assert len(world.records(world.topics.dead_letter)) == 1


@only_classic
def test_a_request_of_as_many_shards_as_there_may_be_is_gathered_over_all_partitions(world: World) -> None:
    """250 definitions and triggers in one transaction; each shard tells its end."""
    task = world.task_on(0)
    lane = make_lane(
        world, runners=FakeRunners(at_once=succeed, capacity=64), tasks=[replace(a_task(task), shards=MAX_SHARDS)]
    )
    with running(lane):
        lane.wait("all held", lane.holds_all)
        world.trigger(task)
        lane.wait("gathered", lambda: "gathered" in [body["kind"] for body in world.history(task)], 60)
    (gathered,) = [body for body in world.history(task) if body["kind"] == "gathered"]
    assert (gathered["outcome"], gathered["shards"]) == ("succeeded", MAX_SHARDS)
    ran = [order.task for order in lane.runners.launched]
    assert sorted(ran) == sorted(shard_id(task, number) for number in range(MAX_SHARDS))
    assert {world.partition(name) for name in ran} == set(range(world.info.partitions))
    assert no_letters(world)


def test_cancel_reaches_the_shards_that_run_and_those_that_wait_over_all_partitions(world: World) -> None:
    task, shards = world.task_on(0), 8
    lane = make_lane(world, runners=FakeRunners(capacity=3), tasks=[replace(a_task(task), shards=shards)])
    names = [shard_id(task, number) for number in range(shards)]

    def over(name: str) -> bool:
        return any(body["kind"] in ("cancelled", "skipped") for body in world.history(name))

    def ends() -> list[str]:
        return [body["outcome"] for body in world.history(task) if body["kind"] == "gathered"]

    with running(lane):
        lane.wait("all held", lane.holds_all)
        world.trigger(task)
        lane.wait("as many run as can", lambda: len(lane.runners.launched) == 3)
        world.produce([(world.topics.control, task, {"op": "cancel", "reason": "no longer wanted"})])
        lane.wait("every shard says its end", lambda: all(over(name) for name in names))
        lane.wait("gathered", lambda: "gathered" in [body["kind"] for body in world.history(task)])
        world.trigger(task)
        lane.wait("the next request starts", lambda: len(lane.runners.launched) > 3)
        lane.runners.at_once = succeed
        for order in list(lane.runners.launched[3:]):
            if lane.runners.holds(order.task, order.epoch):
                lane.runners.finish(order.task)
        lane.wait("and is gathered", lambda: len(ends()) == 2)
    assert ends() == ["cancelled", "succeeded"]
    assert sorted(stop[0] for stop in lane.runners.stopped) == sorted(order.task for order in lane.runners.launched[:3])
    causes = {
        body["cause"] for name in names for body in world.history(name) if body["kind"] in ("cancelled", "skipped")
    }
    assert causes <= {"no longer wanted", "cancelled"}  # the second: its trigger came after the word
    assert not [body for body in world.history(task) if body["kind"] == "skipped"]
    assert no_letters(world)
