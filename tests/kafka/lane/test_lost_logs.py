"""Logs that are not what they were: a loud refusal, never a jump and never an empty start."""

from __future__ import annotations

import pytest
from confluent_kafka.cimpl import NewTopic

from fencepost.kafka.errors import KafkaProblem, WrongNamespace
from fencepost.kafka.namespace import load_namespace
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import Driven, World, make_lane, only_classic, running, wait_until

pytestmark = pytest.mark.faults


def served(world: World, count: int) -> Driven:
    """A lane that ran `count` triggers of one task, and gave everything back."""
    lane, task = make_lane(world, runners=FakeRunners(at_once=succeed)), world.task_on(0)
    with running(lane):
        lane.wait("all held", lane.holds_all)
        world.trigger(*[task] * count)
        lane.wait("all ran", lambda: len(lane.runners.starts_of(task)) == count)
        lane.wait("ends", lambda: (world.state(task) or {}).get("status") == "idle")
    return lane


def make_again(world: World, topic: str) -> None:
    """Delete the topic and make it anew, as somebody with a script would."""
    admin = world.admin
    admin.delete_topics([topic], operation_timeout=10)[topic].result()
    wanted = NewTopic(topic, world.info.partitions, 1)

    def made() -> bool:
        try:
            admin.create_topics([wanted])[topic].result()
        except Exception as error:
            if "already exists" in str(error):
                return False
            raise
        return True

    wait_until(f"{topic} made again", made)


def refusal(lane: Driven) -> BaseException:
    """What the lane ends with."""
    wait_until("the lane refuses", lambda: lane.failure)
    failure = lane.failure
    assert failure is not None
    with pytest.raises(type(failure)):
        lane.close()
    return failure


@pytest.mark.parametrize("kind", ["triggers", "control", "tasks", "state", "owners"])
def test_a_worker_does_not_start_beside_a_topic_that_was_made_again_t05(classic_world: World, kind: str) -> None:
    topic = getattr(classic_world.topics, kind)
    make_again(classic_world, topic)
    with pytest.raises(KafkaProblem, match=r"made again|not initialised"):
        load_namespace(classic_world.settings)


@pytest.mark.parametrize("kind", ["triggers", "state"])
def test_a_lane_under_which_a_topic_is_made_again_refuses_loudly_t05(classic_world: World, kind: str) -> None:
    world, task = classic_world, classic_world.task_on(0)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed)).start()
    lane.wait("all held", lane.holds_all)
    world.trigger(*[task] * 5)
    lane.wait("all ran", lambda: len(lane.runners.starts_of(task)) == 5)
    make_again(world, getattr(world.topics, kind))
    world.trigger(*[task] * 5)
    assert isinstance(refusal(lane), WrongNamespace)
    assert lane.runners.starts_of(task) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["triggers", "state"])
def test_a_lane_that_acquires_again_notices_a_topic_made_again_meanwhile_t05(classic_world: World, kind: str) -> None:
    """The lane itself, where its worker looked before the topic was lost: it must not start empty."""
    world, task = classic_world, classic_world.task_on(0)
    served(world, 3)
    make_again(world, getattr(world.topics, kind))
    world.trigger(task)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed)).start()
    assert isinstance(refusal(lane), WrongNamespace)
    assert lane.runners.launched == []


@only_classic
def test_a_log_that_begins_beyond_the_committed_offset_is_refused_loudly(world: World) -> None:
    task = world.task_on(0)
    served(world, 3)
    world.trigger(*[task] * 4)
    world.delete_records(world.topics.triggers, 0, 5)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed)).start()
    failure = refusal(lane)
    assert isinstance(failure, WrongNamespace)
    assert "holds offsets 5 to 7, but 3 was to be read next" in str(failure)
    assert "A log that begins too late" in str(failure)
    assert lane.runners.launched == []


@only_classic
def test_a_log_that_begins_where_it_was_left_off_is_served_on(world: World) -> None:
    """The refusal above is not for every deletion: what was consumed may go."""
    task = world.task_on(0)
    served(world, 3)
    world.delete_records(world.topics.triggers, 0, 3)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed))
    with running(lane):
        world.trigger(task)
        lane.wait("the next epoch", lambda: lane.runners.starts_of(task) == [4])
