"""A limit over many IDs with real workers: the runs' own witness files say how many were on at once."""

from __future__ import annotations

from itertools import groupby

import pytest

from fencepost.core.limits import Limit
from tests.scenarios.stage import Stage, python_task

MOST = 2


def most_at_once(stage: Stage, tasks: list[str]) -> int:
    """From when each run began to write until its last line: how many of these were there at one time."""
    edges: list[tuple[int, int]] = []
    for task in tasks:
        for _epoch, written in groupby(stage.lines(task), key=lambda line: line.epoch):
            lines = list(written)
            edges += [(lines[0].at_ns, 1), (lines[-1].at_ns, -1)]
    on = most = 0
    for _at_ns, change in sorted(edges):  # an end goes before a beginning of the same moment
        on += change
        most = max(most, on)
    return most


@pytest.mark.timeout(400)
def test_a_limit_holds_while_a_worker_is_killed_in_the_middle_of_its_runs(stage: Stage) -> None:
    stage.start_all("a", "b")
    tasks = [f"db/{number}" for number in range(8)]
    limit = Limit("db", max_runs=MOST)
    stage.define(*(python_task(task, seconds=0.6, limit=limit) for task in tasks))
    for task in tasks:
        stage.trigger(task)
    stage.wait("runs on both", lambda: sum(len(stage.began(task)) for task in tasks) >= MOST)
    stage.workers["a"].kill()  # perhaps the owner of the key as well
    for task in tasks:
        stage.wait_kind(task, "succeeded", limit_s=90.0)
    assert most_at_once(stage, tasks) <= MOST
    stage.check_no_overlap()
    stage.cli("verify")
    assert not stage.dead_letters()
