"""The plain course of things, so that what the traps show is the trap's doing."""

from __future__ import annotations

from fencepost.core.schedule import Every
from fencepost.core.task import Outcome, Retry
from fencepost.worker.orders import RunEnded, RunOrder
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import World, a_task, make_lane, running


def test_a_lane_alone_acquires_every_partition_runs_what_is_triggered_and_releases_all(world: World) -> None:
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    tasks = [world.task_on(partition) for partition in range(4)]
    with running(lane):
        lane.wait("all held", lane.holds_all)
        nonces = {partition: lane.nonce(partition) for partition in range(4)}
        world.trigger(*tasks)
        lane.wait("all ran", lambda: all(lane.runners.starts_of(task) == [1] for task in tasks))
        lane.wait("ends recorded", lambda: all((world.state(task) or {}).get("status") == "idle" for task in tasks))
    for partition, task in enumerate(tasks):
        assert world.kinds(task) == [("started", 1), ("succeeded", 1)]
        acquired, released = world.fences(partition)
        assert (acquired.released, released.released) == (False, True)
        assert acquired.nonce == released.nonce == nonces[partition]


def test_a_lane_that_is_made_but_not_open_yet_holds_up_nobody(world: World) -> None:
    """Opening may wait long for a broker; a member that is not polled would stop every rebalance meanwhile."""
    lane, not_open = make_lane(world, ordinal=1), make_lane(world, ordinal=2)
    with running(lane):
        lane.wait("all held", lane.holds_all)
    not_open.close()


def test_a_task_that_is_ready_again_as_soon_as_it_ended_does_not_keep_another_from_its_slots(world: World) -> None:
    """One runner. The failing task's next attempt is always ready when it is free."""
    busy = world.task_on(0)
    other = world.task_on(0, 1)

    def end(order: RunOrder) -> RunEnded:
        outcome = Outcome.FAILED if order.task == busy else Outcome.SUCCEEDED
        return RunEnded(order.task, order.epoch, outcome, error="no" if outcome is Outcome.FAILED else None)

    tasks = [
        a_task(busy, retry=Retry(attempts=10_000, delay_s=0.0, jitter=0.0)),
        a_task(other, schedule=Every(1)),
    ]
    lane = make_lane(world, runners=FakeRunners(at_once=end, capacity=1), tasks=tasks)
    with running(lane):
        lane.wait("all held", lane.holds_all)
        world.trigger(busy)
        lane.wait("slots ran", lambda: len(lane.runners.starts_of(other)) >= 3)
        assert len(lane.runners.starts_of(busy)) > 3
