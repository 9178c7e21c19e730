"""A broadcast on a real broker: each worker that is there runs it, whatever moves meanwhile."""

from __future__ import annotations

from typing import Any

from fencepost.core.broadcasts import MOVED
from fencepost.core.task import Outcome, Retry
from fencepost.wire.definition import definition_to_json
from fencepost.worker.declared import Declared
from fencepost.worker.orders import RunEnded, RunOrder
from tests.kafka.lane.fakes import FakeRunners
from tests.kafka.lane.harness import PARTITIONS, Driven, World, a_task, make_lane, only_classic, running

LIMIT_S = 60.0


def tell_shard(order: RunOrder) -> RunEnded:
    assert order.origin is not None
    assert order.origin.shard is not None
    return RunEnded(order.task, order.epoch, Outcome.SUCCEEDED, result=[order.origin.shard.worker, order.payload])


def lane_of(world: World, worker: str, at_once: Any = tell_shard) -> Driven:
    return make_lane(world, worker=worker, runners=FakeRunners(at_once=at_once), tasks=[])


def define(world: World, lane: Driven) -> str:
    """A broadcast whose owner is this lane."""
    task = world.task_on(min(lane.held()))
    definition = a_task(task, broadcast=True, retry=Retry(attempts=2, delay_s=0.05))
    world.produce([(world.topics.tasks, task, definition_to_json(definition))])
    return task


def share(*lanes: Driven) -> None:
    lanes[0].wait("each has some", lambda: all(lane.held() for lane in lanes), LIMIT_S)
    lanes[0].wait("all held", lambda: sum(len(lane.held()) for lane in lanes) == PARTITIONS, LIMIT_S)


def gathered(world: World, task: str) -> list[dict[str, Any]]:
    return [body for body in world.history(task) if body["kind"] == "gathered"]


def outcomes(world: World, task: str) -> dict[str, str]:
    return {item["worker"]: item["outcome"] for item in gathered(world, task)[-1]["result"]}


def ran(*lanes: Driven) -> dict[str, list[tuple[str, int]]]:
    return {
        lane.context.identity.worker: [(order.task, order.epoch) for order in lane.runners.launched] for lane in lanes
    }


def no_letters(world: World) -> bool:
    return not world.records(world.topics.dead_letter)


def test_every_worker_runs_a_broadcast_once_on_a_partition_of_its_own(world: World) -> None:
    lanes = [lane_of(world, worker) for worker in "abc"]
    with running(*lanes):
        share(*lanes)
        task = define(world, lanes[0])
        held = {lane.context.identity.worker: lane.held() for lane in lanes}
        world.trigger(task, payload={"n": 1})
        lanes[0].wait("gathered", lambda: gathered(world, task), LIMIT_S)
    (end,) = gathered(world, task)
    assert (end["outcome"], end["shards"]) == ("succeeded", 3)
    assert [(item["worker"], item["result"]) for item in end["result"]] == [(w, [w, {"n": 1}]) for w in "abc"]
    assert {worker: len(runs) for worker, runs in ran(*lanes).items()} == {"a": 1, "b": 1, "c": 1}
    for item in end["result"]:
        assert world.partition(item["task"]) in held[item["worker"]]
    assert no_letters(world)


@only_classic
def test_a_worker_that_goes_before_it_has_run_has_left_and_nobody_runs_its_part(world: World) -> None:
    """It has no room, so its part waits there; then it gives its partitions back."""
    stays, goes = lane_of(world, "stays"), lane_of(world, "goes")
    with running(stays, goes):
        share(stays, goes)
        task = define(world, stays)
        goes.runners.capacity = 0
        world.trigger(task)
        stays.wait("one has run it", lambda: stays.runners.launched, LIMIT_S)
        (asked,) = [body["workers"] for body in world.history(task) if body["kind"] == "fanned_out"]
        assert [item["worker"] for item in asked] == ["goes", "stays"]
        assert not gathered(world, task)
        goes.close()
        stays.wait("gathered", lambda: gathered(world, task), LIMIT_S)
    assert gathered(world, task)[0]["outcome"] == "succeeded"
    assert outcomes(world, task) == {"stays": "succeeded", "goes": "left"}
    assert {worker: len(runs) for worker, runs in ran(stays, goes).items()} == {"stays": 1, "goes": 0}
    assert no_letters(world)


@only_classic
def test_a_run_that_ends_with_its_worker_is_not_made_up_for_by_another(world: World) -> None:
    stays, goes = lane_of(world, "stays"), lane_of(world, "goes", at_once=lambda _order: None)
    with running(stays, goes):
        share(stays, goes)
        task = define(world, stays)
        world.trigger(task)
        stays.wait("both run it", lambda: stays.runners.launched and goes.runners.launched, LIMIT_S)
        goes.close()
        stays.wait("gathered", lambda: gathered(world, task), LIMIT_S)
    assert outcomes(world, task) == {"stays": "succeeded", "goes": "left"}
    (shard,) = [order.task for order in goes.runners.launched]
    told = [(body["kind"], body.get("cause")) for body in world.history(shard)]
    assert told[-1] == ("interrupted", MOVED)
    assert "retry_at" in world.history(shard)[-2]
    assert len(stays.runners.launched) == 1
    assert no_letters(world)


@only_classic
def test_a_request_asked_of_one_that_left_goes_on_after_its_own_owner_has_left_too(world: World) -> None:
    """The look at who is there is not made before the request, and not by whoever had it: the next owner makes it."""
    first = lane_of(world, "first")
    with running(first):
        first.wait("all held", first.holds_all, LIMIT_S)
        task = define(world, first)
        first.runners.at_once = lambda _order: None
        world.trigger(task)
        first.wait("it runs", lambda: first.runners.launched, LIMIT_S)
        world.trigger(task)
        first.wait("the next one waits", lambda: ("triggered", None) in world.kinds(task), LIMIT_S)
    second = lane_of(world, "second")
    with running(second):
        second.wait("both are over", lambda: len(gathered(world, task)) == 2, LIMIT_S)
    assert [body["outcome"] for body in gathered(world, task)] == ["failed", "succeeded"]
    assert gathered(world, task)[0]["error"] == "every worker that was asked has left"
    assert outcomes(world, task) == {"second": "succeeded"}
    assert no_letters(world)


@only_classic
def test_a_worker_without_the_handler_does_not_keep_the_request_waiting(world: World) -> None:
    able, unable = lane_of(world, "able"), lane_of(world, "unable")
    unable.context.declared = Declared([], [])
    with running(able, unable):
        share(able, unable)
        task = define(world, able)
        world.trigger(task)
        able.wait("gathered", lambda: gathered(world, task), LIMIT_S)
    assert gathered(world, task)[0]["outcome"] == "failed"
    assert outcomes(world, task) == {"able": "succeeded", "unable": "skipped"}
    assert no_letters(world)
