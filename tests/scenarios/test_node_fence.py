"""Fencing of the node: a confirmed end of a lost worker ends the wait for its lease; anything else does not."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest

from fencepost.core.times import parse_rfc3339
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.faults

LONG_LEASE = {"FENCEPOST_LEASE_TTL_S": "60"}
SHORT_LEASE_S = 8.0


def at_s(event: dict[str, Any]) -> float:
    return parse_rfc3339(event["at"]) / 1000


def starts(stage: Stage, task: str) -> list[dict[str, Any]]:
    return [event for event in stage.world.history(task) if event["kind"] == "started"]


def test_a_lost_worker_whose_node_is_fenced_is_not_waited_for(stage: Stage) -> None:
    """It is frozen, and its lease would last a minute; the command ends it by the process ID it is told."""
    command = shlex.join([sys.executable, "-c", "import os; os.kill(int('{pid}'), 9)"])
    stage.start_all("a", "b", FENCEPOST_FENCE_COMMAND=command, **LONG_LEASE)
    worker, task = stage.workers["a"], stage.task_of("a")
    stage.trigger(task, payload={"seconds": 600, "stubborn": True})
    stage.wait_line(task)
    worker.may_end = True
    worker.freeze()
    interrupted = stage.wait_kind(task, "interrupted")
    assert (interrupted["cause"], interrupted["node_fenced"]) == ("lost", "confirmed")
    first, second = stage.wait("started again", lambda: len(found := starts(stage, task)) == 2 and found)
    assert at_s(second) - at_s(first) < 60  # the lease of the first was never over
    assert stage.wait_ended(worker) == -9
    stage.wait("nothing of it left", lambda: not worker.left_behind())
    assert [line["took_s"] > 0 for line in stage.workers["b"].said("node fenced")] == [True]
    stage.cli("cancel", task)
    stage.check_no_overlap()


def test_a_command_that_fails_is_recorded_and_the_lease_is_waited_for(stage: Stage) -> None:
    command = shlex.join([sys.executable, "-c", "raise SystemExit('no answer from the switch')"])
    stage.start_all("a", "b", FENCEPOST_FENCE_COMMAND=command, FENCEPOST_LEASE_TTL_S=f"{SHORT_LEASE_S:g}")
    worker, task = stage.workers["a"], stage.task_of("a")
    stage.trigger(task, payload={"seconds": 600, "stubborn": True})
    stage.wait_line(task)
    worker.kill()
    interrupted = stage.wait_kind(task, "interrupted")
    assert (interrupted["cause"], interrupted["node_fenced"]) == ("lost", "failed")
    first, second = stage.wait("started again", lambda: len(found := starts(stage, task)) == 2 and found)
    assert at_s(second) - at_s(first) >= SHORT_LEASE_S
    (said,) = stage.workers["b"].said("node not fenced: its leases are waited for")
    assert said["why"] == "exit code 1: no answer from the switch"
    page = stage.workers["b"].page("/metrics")[1].decode()
    assert 'fencepost_node_fences_total{outcome="failed"} 1.0' in page
    stage.cli("cancel", task)
    stage.check_no_overlap()
