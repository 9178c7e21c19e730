"""A backfill whose slots run side by side, on a real broker and over a takeover."""

from __future__ import annotations

import time
from typing import Any

from fencepost.core.fans import slot_id
from fencepost.core.schedule import Every
from fencepost.core.task import CatchUp
from fencepost.wire.control import encode_backfill
from tests.kafka.lane.fakes import FakeRunners
from tests.kafka.lane.harness import Driven, World, a_task, make_lane, running

HOUR = 3_600_000


def test_slots_side_by_side_are_never_more_than_asked_for_and_none_is_lost_or_doubled_by_a_takeover(
    world: World,
) -> None:
    task = world.task_on(0)
    since_ms = (int(time.time() * 1000) // HOUR - 30) * HOUR
    slots = [since_ms + number * HOUR for number in range(12)]
    definition = a_task(task, schedule=Every(3600, since_ms), catch_up=CatchUp.NONE)
    first, second = (make_lane(world, runners=FakeRunners(), tasks=[definition]) for _ in "12")
    ids = {slot_id(task, place) for place in range(3)}
    ended: list[int] = []

    def on(lane: Driven) -> list[Any]:
        return [each for each in lane.runners.launched if lane.runners.holds(each.task, each.epoch)]

    def end_some(lane: Driven, count: int) -> None:
        for _ in range(count):
            lane.wait("one is on", lambda: on(lane))
            order = on(lane)[0]
            assert len(on(lane)) <= 3
            ended.append(order.scheduled_for_ms)
            lane.runners.finish(order.task)

    def over() -> list[dict[str, Any]]:
        return [body for body in world.history(task) if body["kind"] == "backfilled"]

    with running(first):
        first.wait("all held", first.holds_all)
        value = encode_backfill("june", slots[0], slots[-1], (), 3)
        world.produce_to(world.topics.control, world.partition(task), task.encode(), value)
        first.wait("three are on", lambda: len(on(first)) == 3)
        assert {each.task for each in on(first)} == ids
        end_some(first, 4)
    with running(second):
        end_some(second, 8)
        second.wait("it is over", over)
    assert sorted(ended) == slots
    (end,) = over()
    assert (end["count"], end["succeeded"], end["failed"], end["skipped"]) == (12, 12, 0, 0)
    assert not world.records(world.topics.dead_letter)
    state = world.state(task)
    assert state is not None
    assert "backfill" not in state
