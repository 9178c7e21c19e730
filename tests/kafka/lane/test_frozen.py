"""A worker frozen for longer than its session and its lease, then awake again (case R01)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.kafka.lane.harness import World, make_lane, running
from tests.kafka.lane.processes import LaneProcess

pytestmark = pytest.mark.faults


def test_a_lane_that_wakes_after_its_session_is_over_kills_its_runs_and_joins_again_r01(
    world: World, tmp_path: Path
) -> None:
    task = world.task_on(0)
    with LaneProcess(world, tmp_path, worker="frozen", static=False) as frozen:
        frozen.wait("it holds all", lambda: sum(len(e["partitions"]) for e in frozen.events_of("holding")) == 4)
        world.trigger(task)
        frozen.wait("it runs", lambda: frozen.launched == [(task, 1)])
        frozen.signal(signal.SIGSTOP)
        heir = make_lane(world)
        with running(heir):
            heir.wait("it holds all", heir.holds_all)
            heir.wait("the next epoch", lambda: heir.runners.starts_of(task) == [2])
            frozen.signal(signal.SIGCONT)
            frozen.wait("its run is gone", lambda: frozen.events_of("ended"))
            heir.runners.finish(task)
            seen = len(frozen.events)
            frozen.wait("it joins again", lambda: [e for e in frozen.events[seen:] if e["event"] == "holding"], 15)
            heir.wait("half each", lambda: len(heir.held()) == 2)
            assert frozen.launched == [(task, 1)]
            (ended,) = frozen.events_of("ended")
            (began_s, _end_s) = heir.runners.intervals(task)[0]
            assert ended["ended_s"] < began_s, "the lease was over before the next epoch began"
            assert frozen.events_of("lost") or not frozen.events_of("revoked")
    kinds = [(body["kind"], body.get("cause")) for body in world.history(task)]
    assert kinds == [("started", None), ("interrupted", "lost"), ("started", None), ("succeeded", None)]
