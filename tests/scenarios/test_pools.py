"""Pools with real workers: only those of the pool run its tasks, also when one is killed and when the pool changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fencepost.core.schedule import Every
from tests.kafka.lane.harness import World, discard
from tests.scenarios.stage import Stage, WorkerProcess, python_task


@pytest.fixture
def gpu(stage: Stage) -> Iterator[World]:
    """The pool of the stage's namespace."""
    stage.cli("init", "--pool", "gpu", "--profile", "quick", "--group-protocol", "consumer")
    topics = stage.world.topics.of("gpu")
    made = replace(stage.world, topics=topics, settings=replace(stage.world.settings, namespace=topics.namespace))
    yield made
    discard(made)


def ready(stage: Stage, *workers: WorkerProcess) -> None:
    for worker in workers:
        stage.wait(f"{worker.name} ready", worker.ready)


def lanes_that_started(world: World, task: str) -> set[str]:
    return {event["lane"] for event in world.history(task) if event["kind"] == "started"}


@pytest.mark.timeout(300)
def test_a_pool_survives_its_worker_and_a_task_goes_home_with_its_epochs(stage: Stage, gpu: World) -> None:
    home = stage.start("home")
    first, second = stage.start("g1", "--pool", "gpu"), stage.start("g2", "--pool", "gpu")
    ready(stage, home, first, second)
    enough = stage.folder / "enough"
    task = "train"
    stage.define(python_task(task, until=enough, pool="gpu"), python_task("plain"))
    stage.cli("trigger", task, "--id", "one")
    stage.cli("trigger", "plain", "--wait")
    stage.wait_line(task)
    (lane,) = lanes_that_started(gpu, task)
    holder, other = (first, second) if lane.startswith(_worker_of(gpu, first)) else (second, first)
    assert "in pool gpu" in stage.cli("tasks").stdout
    holder.kill()
    stage.wait_line(task, "begin", 2)
    assert [kind for kind, _ in gpu.kinds(task)].count("interrupted") == 1
    # While it runs, it is wanted at home: the run may end, what waits goes along.
    stage.define(python_task(task, seconds=0.05))
    stage.cli("trigger", task, "--id", "two")
    stage.wait("it is called back", lambda: (stage.world.state(task) or {}).get("place", {}).get("recalled"))
    assert "started" not in [kind for kind, _ in stage.world.kinds(task)]
    enough.touch()
    done = json.loads(stage.cli("trigger", task, "--id", "three", "--wait", "--json").stdout)
    assert done["outcome"] == "succeeded"
    stage.wait("both ran at home", lambda: stage.world.kinds(task).count(("succeeded", 4)))
    assert [epoch for kind, epoch in gpu.kinds(task) if kind == "started"] == [1, 2]
    assert [epoch for kind, epoch in stage.world.kinds(task) if kind == "started"] == [3, 4]
    home_lanes = lanes_that_started(stage.world, task) | lanes_that_started(stage.world, "plain")
    assert home_lanes.isdisjoint(lanes_that_started(gpu, task))
    stage.check_no_overlap()
    assert [line.epoch for line in stage.began(task)] == [1, 2, 3, 4]
    stage.cli("verify")
    stage.cli("verify", "--pool", "gpu")
    assert not stage.dead_letters()
    assert other.exit_code is None


@pytest.mark.timeout(300)
def test_without_a_worker_of_the_pool_its_tasks_wait_and_their_slots_are_its_own(stage: Stage, gpu: World) -> None:
    home = stage.start("home")
    ready(stage, home)
    stage.define(python_task("tick", schedule=Every(1.0), pool="gpu"), python_task("asked", pool="gpu"))
    stage.cli("trigger", "asked")
    stage.wait(
        "both are away", lambda: {"tick", "asked"} <= {t for t, s in stage.world.states().items() if "place" in s}
    )
    assert stage.lines("asked") == [] == stage.lines("tick")
    late = stage.start("late", "--pool", "gpu")
    ready(stage, late)
    stage.wait_line("asked", "end")
    stage.wait_line("tick", "end", 2)
    assert not lanes_that_started(stage.world, "tick") | lanes_that_started(stage.world, "asked")
    shown = json.loads(stage.cli("runs", "tick", "--pool", "gpu", "--json").stdout)
    assert {run["outcome"] for run in shown["runs"]} <= {"succeeded", "running"}
    assert "late" not in stage.cli("workers").stdout
    stage.cli("verify", "--pool", "gpu")


def _worker_of(world: World, worker: WorkerProcess) -> str:
    for record in world.records(world.topics.workers):
        if record.value is not None and (body := json.loads(record.value))["pid"] == worker.pid:
            return str(body["worker"])
    raise AssertionError(f"{worker.name} has not told of itself")
