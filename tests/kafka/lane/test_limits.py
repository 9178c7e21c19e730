"""A limit over many IDs on a real broker: lanes that own different tasks, and the key's owner, hold it together."""

from __future__ import annotations

from typing import Any

from fencepost.core.ids import side_key
from fencepost.core.limits import Limit, group_id
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Driven, World, a_task, make_lane, only_classic, running, wait_until

KEY = group_id("db")


def limited(world: World, count: int, limit: Limit) -> list[Any]:
    return [a_task(f"t-{number}", limit=limit) for number in range(count)]


def lane_of(world: World, tasks: list[Any], at_once: Any = None) -> Driven:
    return make_lane(world, runners=FakeRunners(at_once=at_once), tasks=tasks)


def alive(*lanes: Driven) -> list[str]:
    return [task for lane in lanes for (task, _), life in lane.runners.lives.items() if life.ended_s is None]


def claims(world: World) -> list[str]:
    """Keys of claim records that are not tombstones."""
    newest: dict[bytes, bool] = {}
    for record in world.records(world.topics.state, world.partition(KEY)):
        if record.key is not None and record.key.startswith(side_key(KEY, "claim", 0).encode()[:-1]):
            newest[record.key] = record.value is not None
    return [key.decode() for key, there in newest.items() if there]


@only_classic
def test_lanes_hold_a_limit_together_over_a_takeover_of_its_key(world: World) -> None:
    tasks = limited(world, 12, Limit("db", max_runs=2))
    names = [task.task for task in tasks]
    lanes = [lane_of(world, tasks), lane_of(world, tasks)]
    with running(*lanes):
        wait_until("both hold some", lambda: all(len(lane.held()) == 2 for lane in lanes))
        world.trigger(*names)
        wait_until("two run", lambda: len(alive(*lanes)) == 2)
        done = 0
        while done < 4:
            for lane in lanes:
                for task in alive(lane):
                    lane.runners.finish(task)
                    done += 1
            wait_until("the next two run", lambda: len(alive(*lanes)) == 2)
        key_owner = next(lane for lane in lanes if world.partition(KEY) in lane.held())
        other = next(lane for lane in lanes if lane is not key_owner)
        key_owner.close()  # its runs are stopped, its partitions go to the other
        wait_until("the other holds all", other.holds_all)
        for name in names:  # those that the stop interrupted come once more

            def succeeded(name: str = name) -> bool:
                on = alive(other)
                assert len(on) <= 2
                for task in on:
                    other.runners.finish(task)
                return "succeeded" in [kind for kind, _ in world.kinds(name)]

            other.wait(f"{name} succeeded", succeeded)
        other.wait("nothing is held any more", lambda: claims(world) == [])
    assert not world.records(world.topics.dead_letter)


@only_classic
def test_a_rate_holds_over_lanes_and_tasks_without_a_limit_do_not_wait(world: World) -> None:
    tasks = [*limited(world, 6, Limit("db", rate="2/s")), a_task("t-free")]
    lane = lane_of(world, tasks, succeed)
    with running(lane):
        lane.wait("it holds all", lane.holds_all)
        world.trigger(*[task.task for task in tasks])
        lane.wait("all ran", lambda: len(lane.runners.launched) == 7)
        began = sorted(life.began_s for (task, _), life in lane.runners.lives.items() if task != "t-free")
        free = next(life.began_s for (task, _), life in lane.runners.lives.items() if task == "t-free")
    assert free < began[2]
    # Starts follow grants; a grant is never early, but may be late.
    for number in range(1, len(began)):
        assert began[number] - began[0] >= number * 0.5 - 0.4
