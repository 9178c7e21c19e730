"""A commit whose result is unknown is resolved by reading; nothing is acted on before, nothing written twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.kafka import transaction
from tests.faults.proxy import Action, Api, Rule
from tests.kafka.lane.conftest import Proxied
from tests.kafka.lane.harness import Driven, World, make_lane, running

pytestmark = pytest.mark.faults


@pytest.fixture
def lane(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    """A lane behind the proxy that holds everything, and gives up on an end after a second."""
    monkeypatch.setattr(transaction, "END_LIMIT_S", 1.0)
    made = make_lane(proxied.through.with_client(socket_timeout_ms="700"))
    with running(made):
        made.wait("all held", made.holds_all)
        yield made


def ends_of(lane: Driven, proxied: Proxied, action: Action, times: int | None) -> Rule:
    return proxied.proxy.rule(
        action, Api.END_TXN, lambda request: any(request.names(name) for name in lane.context.ring), times
    )


def run_once_more(lane: Driven, world: World, task: str) -> None:
    """Let the run end, and check that all that was recorded of it was recorded once."""
    lane.runners.finish(task)
    lane.wait("its end", lambda: (world.state(task) or {}).get("status") == "idle")
    assert lane.runners.starts_of(task) == [1]
    assert lane.runners.refused == []
    assert world.kinds(task) == [("started", 1), ("succeeded", 1)]


def test_a_commit_that_went_through_unheard_is_found_by_reading_and_not_written_again(
    proxied: Proxied, lane: Driven
) -> None:
    task = proxied.world.task_on(0)
    unheard = ends_of(lane, proxied, Action.LOSE_ANSWER, None)
    proxied.world.trigger(task)
    unheard.wait()
    unheard.wait_answered()
    assert lane.runners.launched == []
    lane.wait("it is unclear", lambda: lane.notes.of("outcome of a transaction unknown"))
    assert lane.runners.launched == [], "acted on before it was read back"
    unheard.lift()
    lane.wait("it runs", lambda: lane.runners.starts_of(task) == [1])
    run_once_more(lane, proxied.world, task)


def test_a_commit_that_never_arrived_is_ended_and_offered_again(proxied: Proxied, lane: Driven) -> None:
    task = proxied.world.task_on(0)
    lost = ends_of(lane, proxied, Action.LOSE_REQUEST, None)
    proxied.world.trigger(task)
    lost.wait()
    lane.wait("it is unclear", lambda: lane.notes.of("outcome of a transaction unknown"))
    assert lane.runners.launched == []
    assert proxied.world.state(task) is None
    lost.lift()
    lane.wait("it runs", lambda: lane.runners.starts_of(task) == [1])
    run_once_more(lane, proxied.world, task)


def test_a_connection_that_breaks_during_the_end_costs_a_producer_and_nothing_else(
    proxied: Proxied, lane: Driven
) -> None:
    task = proxied.world.task_on(0)
    cut = ends_of(lane, proxied, Action.CUT_AFTER, 1)
    proxied.world.trigger(task)
    cut.wait()
    lane.wait("it runs", lambda: lane.runners.starts_of(task) == [1])
    assert [place.producer is None for place in lane.lane._ring._places].count(True) <= 1
    run_once_more(lane, proxied.world, task)


def test_a_lane_cut_off_from_kafka_ends_its_runs_with_its_lease_and_comes_back_by_itself(
    proxied: Proxied, lane: Driven
) -> None:
    task = proxied.world.task_on(0)
    proxied.world.trigger(task)
    lane.wait("it runs", lambda: lane.runners.starts_of(task) == [1])
    proxied.proxy.cut_off()
    lane.wait("the lease ended it", lambda: not lane.runners.holds(task, 1))
    proxied.proxy.reconnect()
    lane.wait("the next epoch", lambda: lane.runners.starts_of(task) == [1, 2])
    lane.runners.finish(task)
    lane.wait("its end", lambda: (proxied.world.state(task) or {}).get("status") == "idle", 100)
    kinds = proxied.world.kinds(task)
    assert [kind for kind, _ in kinds] == ["started", "interrupted", "started", "succeeded"]
