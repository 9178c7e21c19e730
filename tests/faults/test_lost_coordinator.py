"""The broker that coordinates the group dies for good, and the others forget it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from fencepost.broker import Cluster
from fencepost.broker.wire import serving_brokers
from fencepost.kafka.patience import patiently
from fencepost.kafka.transaction import end_producers
from tests.conftest import note_broker
from tests.kafka.lane.fakes import FakeRunners, succeed
from tests.kafka.lane.harness import make_lane, make_world, running, wait_until


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "kafka", nodes=3) as cluster:
        note_broker(f"embedded Apache Kafka {cluster.version}, three nodes")
        yield cluster


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_lane_goes_on_after_the_group_coordinator_is_gone(three: Cluster, namespace: str, protocol: str) -> None:
    """The client library went on waiting for it, in a call that took no notice of its time limit: workers ended."""
    world = make_world(three.bootstrap, namespace, protocol)
    lane = make_lane(world, runners=FakeRunners(at_once=succeed), transaction_timeout_s=10.0)
    task = world.task_on(1)
    # The coordinators of a cluster that began a moment ago may still load.
    patiently(lambda: end_producers(world.settings, lane.context.ring, 10.0), 60)
    with running(lane):
        lane.wait("all held", lane.holds_all, 60)
        for _ in range(8):  # every producer of the ring has asked for the coordinator
            ran = len(lane.runners.starts_of(task))
            world.trigger(task)
            lane.wait("it ran", lambda ran=ran: len(lane.runners.starts_of(task)) > ran, 30)
        admin = AdminClient({"bootstrap.servers": three.bootstrap, "log_level": 0})
        coordinator = admin.describe_consumer_groups([namespace])[namespace].result(30).coordinator.id
        alive = next(node for node in three.node_ids if node != coordinator)
        three.kill(coordinator)
        address = three.addresses[alive - 1]
        wait_until("forgotten", lambda: coordinator not in serving_brokers(address, three.ports.client), 60)
        ran = len(lane.runners.starts_of(task))
        world.trigger(task)
        lane.wait("it ran", lambda: len(lane.runners.starts_of(task)) > ran, 60)
