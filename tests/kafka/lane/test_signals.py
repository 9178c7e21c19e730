"""What one task's owner tells another's, as it arrives at a lane on a real broker."""

from __future__ import annotations

from typing import Any

from fencepost.codec import loads
from fencepost.core.ids import side_key
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
    parent = world.task_on(1)
    first, second = a_lane(world), a_lane(world)
    with running(first):
        subscribe(world, parent, "child")
        first.wait("it is kept", lambda: children(world, parent) == ["child"])
    with running(second):
        second.wait("all held", second.holds_all)
        world.trigger(parent)
        second.wait("refused", lambda: world.history(parent))
        world.produce([(world.topics.tasks, parent, {"handler": {"kind": "python", "function": "work"}})])
        world.trigger(parent)
        second.wait("it ran", lambda: second.runners.starts_of(parent) == [1])
    assert children(world, parent) == ["child"]
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
