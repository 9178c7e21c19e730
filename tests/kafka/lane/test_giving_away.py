"""Giving partitions away: the reader and the ring work while the callback of the group is on the stack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.core.task import OnHandover
from tests.kafka.lane.fakes import overlaps
from tests.kafka.lane.harness import Driven, World, a_task, make_lane, only_classic, running, wait_until


@dataclass(slots=True)
class Callback:
    """What goes on around a lane's on_revoke."""

    before: Callable[[], None] = lambda: None  # still inside the callback, on the lane's thread
    inside: threading.Event = field(default_factory=threading.Event)
    partitions: list[int] = field(default_factory=list)
    seen_at_return: list[Any] = field(default_factory=list)


def watch_revocation(lane: Driven, look: Callable[[], Any]) -> Callback:
    """`look` runs on the lane's thread right before on_revoke returns to the client library."""
    member, callback = lane.lane._member, Callback()
    assigned, revoked, lost = member._on

    def watched(numbers: list[int]) -> None:
        callback.partitions += numbers
        callback.inside.set()
        revoked(numbers)
        callback.seen_at_return.append(look())
        callback.inside.clear()

    member._on = (assigned, watched, lost)
    return callback


def runs_everywhere(lane: Driven, world: World) -> list[str]:
    """A run on each partition; the tasks by partition."""
    tasks = [world.task_on(partition) for partition in range(4)]
    lane.wait("all held", lane.holds_all)
    world.trigger(*tasks)
    lane.wait("all run", lambda: all(lane.runners.starts_of(task) == [1] for task in tasks))
    return tasks


def test_a_run_that_ends_while_its_partition_is_given_away_is_recorded_before_the_callback_returns(
    world: World,
) -> None:
    lane = make_lane(world, ordinal=1)
    with running(lane):
        tasks = runs_everywhere(lane, world)
        callback = watch_revocation(lane, world.states)
        nonces = [lane.nonce(partition) for partition in range(4)]
        newcomer = make_lane(world, ordinal=2)
        with running(newcomer):
            assert callback.inside.wait(30)
            given = [tasks[partition] for partition in callback.partitions]
            assert all(lane.runners.holds(task, 1) for task in given), (
                "runs may end while their partition is given away"
            )
            for task in tasks:
                lane.runners.finish(task)
            newcomer.wait("it has what was given", lambda: newcomer.held() == set(callback.partitions))
            assert newcomer.runners.launched == []
            assert not newcomer.notes.of("ending earlier holders' producers")
    (states,) = callback.seen_at_return[:1]
    for task in given:
        assert (states[task]["status"], states[task]["last"]["outcome"]) == ("idle", "succeeded")
        assert states[task]["nonce"] == nonces[world.partition(task)]
        assert world.kinds(task) == [("started", 1), ("succeeded", 1)]
    for partition in callback.partitions:
        first, second, *_ = world.fences(partition)
        assert (first.nonce, first.released) == (nonces[partition], False)
        assert (second.nonce, second.released) == (nonces[partition], True)


def test_what_outlives_the_handover_limit_is_stopped_and_uses_up_no_attempt(world: World) -> None:
    lane = make_lane(world, ordinal=1, handover_limit_s=0.5)
    with running(lane):
        tasks = runs_everywhere(lane, world)
        newcomer = make_lane(world, ordinal=2)
        with running(newcomer):
            newcomer.wait("some of it", newcomer.held)
            moved = [task for task in tasks if world.partition(task) in newcomer.held()]
            newcomer.wait("the next epoch", lambda: all(newcomer.runners.starts_of(task) == [2] for task in moved))
            assert {order.attempt for order in newcomer.runners.launched} == {1}
            for task in moved:
                newcomer.runners.finish(task)
            for task in set(tasks) - set(moved):
                assert lane.runners.holds(task, 1), "the others' runs are not touched"
                lane.runners.finish(task)
    for task in moved:
        assert overlaps(lane.runners, newcomer.runners, task=task) == []
        kinds = [(body["kind"], body.get("cause")) for body in world.history(task)]
        assert kinds[:3] == [("started", None), ("interrupted", "handover"), ("started", None)]


@only_classic
def test_a_task_that_says_stop_is_stopped_as_soon_as_its_partition_is_wanted(world: World) -> None:
    tasks = [a_task(on_handover=OnHandover.STOP, grace_s=1.0)]
    lane = make_lane(world, ordinal=1, tasks=tasks)
    with running(lane):
        runs_everywhere(lane, world)
        newcomer = make_lane(world, ordinal=2, tasks=tasks)
        with running(newcomer):
            newcomer.wait("some of it", newcomer.held)
            wait_until("its next epoch", lambda: len(newcomer.runners.launched) == len(newcomer.held()))
            reasons = {(reason, cause) for _task, _epoch, reason, cause in lane.runners.stopped}
            assert reasons == {("interrupted", "handover")}


@only_classic
def test_nothing_new_starts_on_a_partition_that_is_being_given_away(world: World) -> None:
    lane = make_lane(world, ordinal=1)
    with running(lane):
        tasks = runs_everywhere(lane, world)
        callback = watch_revocation(lane, lambda: [order.task for order in lane.runners.launched])
        newcomer = make_lane(world, ordinal=2)
        with running(newcomer):
            assert callback.inside.wait(30)
            late = [world.task_on(partition, 1) for partition in callback.partitions]
            given = [tasks[partition] for partition in callback.partitions]
            world.trigger(*late)
            for task in given:
                lane.runners.finish(task)
            newcomer.wait("it runs them", lambda: all(newcomer.runners.starts_of(task) == [1] for task in late))
    assert all(lane.runners.starts_of(task) == [] for task in late)
