"""Kind 1, B03: who could not join, or could not read, runs nothing and says that it is not ready."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.proxy import Action, Api, Proxy, Request
from tests.scenarios.stage import Stage, on_stage

if TYPE_CHECKING:
    from fencepost.broker import Cluster

pytestmark = pytest.mark.faults

VARIANTS = {
    "joining": ("classic", Api.JOIN_GROUP),
    "syncing": ("classic", Api.SYNC_GROUP),
    "heartbeat": ("consumer", Api.CONSUMER_GROUP_HEARTBEAT),
    "reading state": ("consumer", Api.FETCH),
}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(proxied_broker: tuple[Proxy, Cluster], variant: str, namespace: str, tmp_path: Path) -> Iterator[Stage]:
    proxy, cluster = proxied_broker
    with on_stage(cluster.bootstrap, namespace, tmp_path, protocol=VARIANTS[variant][0]) as made:
        yield made
        proxy.clear()


def test_b03_a_worker_that_cannot_join_or_restore_starts_nothing_and_is_not_ready(
    stage: Stage, proxied_broker: tuple[Proxy, Cluster], variant: str
) -> None:
    proxy, _ = proxied_broker
    stage.start_all("healthy")
    tasks = [stage.task_on(number) for number in range(4)]
    api = VARIANTS[variant][1]
    topic_id = uuid.UUID(bytes=topic_id_bytes(stage))

    def concerned(request: Request) -> bool:
        return api is not Api.FETCH or topic_id.bytes in request.frame or request.names(stage.world.topics.state)

    rule = proxy.rule(Action.CUT_BEFORE, api, concerned, times=None)
    stage.start("faulty", bootstrap=proxy.bootstrap)
    rule.wait(60)
    stage.wait("the faulty worker serves its state", lambda: stage.workers["faulty"].page("/livez")[0] == 200)
    hits = len(rule.hits)
    for task in tasks:
        stage.trigger(task)
    if variant in ("joining", "heartbeat"):  # it is no member, so all is the healthy one's
        for task in tasks:
            stage.wait_kind(task, "succeeded")
    # It goes on trying: the error is neither swallowed nor the end of it.
    stage.wait("further attempts", lambda: len(rule.hits) >= hits + 3)
    assert stage.workers["faulty"].exit_code is None
    assert stage.workers["faulty"].page("/readyz")[0] == 503
    assert not [line for task in tasks for line in stage.began(task) if line.worker == "faulty"]
    proxy.clear()
    stage.wait("the faulty worker ready once nothing fails", stage.workers["faulty"].ready)
    for task in tasks:
        stage.wait_kind(task, "succeeded")
        assert len(stage.began(task)) == 1
    stage.check_no_overlap()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_b03_a_worker_with_nothing_to_own_is_ready_all_the_same(stage_of: Callable[..., Stage], protocol: str) -> None:
    """More workers than partitions: not being needed is no failure."""
    stage = stage_of(protocol=protocol, partitions=1)
    workers = [stage.start(name) for name in ("a", "b")]
    stage.wait("both ready", lambda: all(worker.ready() for worker in workers))
    assert len(set(stage.holders().values())) == 1


def topic_id_bytes(stage: Stage) -> bytes:
    """The ID of the state topic as it stands in requests."""
    from base64 import urlsafe_b64decode

    text = stage.world.info.topic_ids[stage.world.topics.state]
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
