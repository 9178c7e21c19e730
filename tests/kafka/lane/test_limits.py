"""A limit over many IDs on a real broker: lanes that own different tasks, and the key's owner, hold it together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.claims import LimitStatus, read_limits
from fencepost.cli.view import load_tasks
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


@only_classic
def test_who_holds_and_who_waits_is_read_from_the_topics_and_keys_are_no_tasks(world: World) -> None:
    tasks = [*limited(world, 3, Limit("db", max_runs=1)), a_task("r-1", limit=Limit("mail", rate="1/h"))]
    names = [task.task for task in tasks[:3]]
    # A run that is interrupted stands behind the others: no lease ends here, however slow the machine is.
    world = replace(world, settings=replace(world.settings, lease_ttl_s=120.0))
    lane = lane_of(world, tasks)

    def seen() -> LimitStatus:
        return read_limits(world.settings, lane.context.clock.now_ms(), "db")[0]

    with running(lane):
        lane.wait("it holds all", lane.holds_all)
        for place, name in enumerate(names):
            world.trigger(name)
            lane.wait("it stands in line", lambda place=place: len(seen().waiting) == place and seen().holders)  # type: ignore[misc]
        lane.wait("the first runs", lambda: alive(lane) == [names[0]])
        status = seen()
        assert [(holder.task, holder.epoch, holder.pool) for holder in status.holders] == [(names[0], 1, None)]
        assert [waiting.task for waiting in status.waiting] == names[1:]
        assert (status.key, status.max_runs, status.rate, status.next_ms) == ("db", 1, None, None)
        world.trigger("r-1")
        lane.wait("r-1 runs", lambda: "r-1" in alive(lane))
        now_ms = lane.context.clock.now_ms()
        both = {each.key: each for each in read_limits(world.settings, now_ms)}
        assert set(both) == {"db", "mail"}
        assert (both["mail"].rate, both["mail"].max_runs) == ("1/h", None)
        assert both["mail"].next_ms is not None
        assert now_ms < both["mail"].next_ms <= now_ms + 3_600_000
        assert not [task for task in load_tasks(world.settings) if task.startswith("limit/")]
        assert set(names) <= set(load_tasks(world.settings))
        lane.runners.finish(names[0])
        lane.wait("the next holds", lambda: [holder.task for holder in seen().holders] == [names[1]])
        for name in (*names[1:], "r-1"):
            lane.wait(f"{name} runs", lambda name=name: name in alive(lane))  # type: ignore[misc]
            lane.runners.finish(name)
        lane.wait("nothing is held any more", lambda: seen() == LimitStatus("db"))
    assert read_limits(world.settings, now_ms, "nobody") == [LimitStatus("nobody")]
