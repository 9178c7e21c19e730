"""Kind 2: whatever happened, it runs again."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from fencepost.core.schedule import Cron, Every
from fencepost.core.task import Overlap
from fencepost.core.times import parse_rfc3339
from tests.scenarios.stage import LIMIT_S, SESSION_S, Stage, python_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.broker import Cluster

pytestmark = pytest.mark.faults

DEATHS = ("before start", "after start", "mid-run", "before end", "after end")


def test_s01_a_death_at_any_point_of_a_run_leaves_no_task_stuck(stage_of: Callable[..., Stage]) -> None:
    """Five workers die, each at another point of a run of its own; the one that stays runs every later slot."""
    stage = stage_of(partitions=6)
    names = [death.replace(" ", "-") for death in DEATHS]
    for death, name in zip(DEATHS, names, strict=True):
        stage.start(name, bend={"die": death, "task": name} if death != "mid-run" else None)
    stage.start("stays")
    stage.all_hold(*names, "stays")
    # Each worker's own task, which kills it and nobody else.
    tasks = {name: stage.task_of(name, f"{name}/") for name in names}
    stage.define(
        *(
            python_task(task, seconds=1.5 if name == "mid-run" else 0.2, schedule=Every(5), overlap=Overlap.SKIP)
            for name, task in tasks.items()
        )
    )
    stage.wait_line(tasks["mid-run"])
    stage.workers["mid-run"].kill()
    for name in names:
        assert stage.wait_ended(stage.workers[name], LIMIT_S) == -signal.SIGKILL
    died_ms = time.time() * 1000
    stage.all_hold("stays")
    for task in tasks.values():

        def ran_since(task: str = task) -> bool:
            return any(
                line.worker == "stays" and line.what == "end" and (line.slot_ms or 0) > died_ms
                for line in stage.lines(task)
            )

        stage.wait(f"a later slot of {task} on the worker that stays", ran_since)
        assert stage.world.state(task)["status"] in ("idle", "running")  # type: ignore[index]
    stage.check_no_overlap()
    # What was recorded as started and never told its end is lost, by name; what was never recorded is not.
    lost = {
        name: [event for event in stage.world.history(task) if event["kind"] == "interrupted"]
        for name, task in tasks.items()
    }
    for name in ("after-start", "mid-run", "before-end"):
        assert [event["cause"] for event in lost[name]] == ["lost"], name
    assert lost["before-start"] == lost["after-end"] == []
    assert "the promise holds" in stage.cli("verify").stdout


def test_s03_what_a_dead_worker_ran_runs_again_within_sessions_not_hours(stage: Stage) -> None:
    stage.start_all("a", "b")
    task = stage.task_of("a")
    stage.trigger(task, payload={"seconds": 2})
    first = stage.wait_line(task)
    stage.workers["a"].kill()
    second = stage.wait_line(task, count=2, limit_s=LIMIT_S)
    stage.wait_line(task, "end")
    assert (first.worker, second.worker) == ("a", "b")
    # And not before the lease of the first was over on any clock: nothing wrote meanwhile.
    stage.check_no_overlap()
    assert [event["cause"] for event in stage.world.history(task) if event["kind"] == "interrupted"] == ["lost"]


def test_s05_150_slots_while_nobody_ran_are_one_record_and_the_next_slot_runs(stage: Stage) -> None:
    """The worker of two and a half hours ago is one whose clock says so; then the machine slept, so to speak."""
    stage.start("then", bend={"clock_s": -150 * 60, "trusting": True})
    stage.all_hold("then")
    # Each minute; the second one not at its full ones, so that nobody has to wait for that.
    soon_ms = int(time.time() * 1000) + 14_000
    stage.define(
        python_task("m", schedule=Cron("* * * * *")), python_task("last", schedule=Every(60, soon_ms), catch_up_s=0.0)
    )
    stage.wait(
        "both are armed", lambda: all((stage.world.state(task) or {}).get("next_slot") for task in ("m", "last"))
    )
    stage.workers["then"].signal(signal.SIGTERM)
    assert stage.wait_ended(stage.workers["then"]) == 0
    began_ms = time.time() * 1000
    stage.start("now")
    missed = {task: stage.wait_kind(task, "missed") for task in ("m", "last")}
    for task, event in missed.items():
        assert 145 <= event["count"] <= 151, (task, event)
        assert len([item for item in stage.world.history(task) if item["kind"] == "missed"]) == 1
    # By its rule the newest missed one runs too, or does not; the next one does, at its time.
    line = stage.wait_line("m")
    assert line.slot_ms is not None
    assert began_ms - 60_000 <= line.slot_ms <= time.time() * 1000
    for task in ("m", "last"):
        next_ms = parse_rfc3339(stage.world.state(task)["next_slot"])  # type: ignore[index]
        assert 0 <= next_ms - time.time() * 1000 + 1000 <= 61_000
    stage.wait("a slot after that", lambda: any((item.slot_ms or 0) > began_ms for item in stage.began("last")), 75)


def test_s07_an_interval_longer_than_the_time_between_restarts_fires(stage: Stage) -> None:
    """Every 9 s, and a worker that is restarted again and again meanwhile: each slot runs, under its own time."""
    stage.start_all("w0")
    stage.define(python_task("rare", schedule=Every(9)))
    stage.wait("it is armed", lambda: (stage.world.state("rare") or {}).get("next_slot"))
    first_ms = parse_rfc3339(stage.world.state("rare")["next_slot"])  # type: ignore[index]
    restarts = 0
    while restarts < 2 or len([line for line in stage.lines("rare") if line.what == "end"]) < 2:
        stage.workers[f"w{restarts}"].signal(signal.SIGTERM)
        assert stage.wait_ended(stage.workers[f"w{restarts}"]) == 0
        restarts += 1
        stage.start_all(f"w{restarts}")
        assert restarts < 60
    slots = [line.slot_ms for line in stage.lines("rare") if line.what == "end"]
    assert slots[0] == first_ms
    # One after the other; where a restart took longer than the interval, what was left out has its cause.
    stage.check_slots("rare", 9000, slots[1] or 0)


def test_s09_a_transaction_that_timed_out_is_got_over_by_itself(stage: Stage, kafka: Cluster) -> None:
    """The broker stands still for twice the transactions' time limit while a run ends."""
    limit_s = SESSION_S
    stage.start_all("a", FENCEPOST_TRANSACTION_TIMEOUT_S=f"{limit_s:g}")
    stage.trigger("t/ends", payload={"seconds": 1.0})
    stage.wait_line("t/ends")
    stage.workers["a"].may_end = True
    kafka.freeze()
    try:
        stage.wait_line("t/ends", "end")
        until_s = time.monotonic() + 2 * limit_s
        stage.wait("twice the limit over", lambda: time.monotonic() > until_s)
    finally:
        kafka.thaw()
    worker = stage.workers["a"]
    stage.wait(
        "its end recorded, or the worker gone", lambda: ended(stage, "t/ends") or worker.exit_code is not None, 60
    )
    if worker.exit_code is not None:
        assert worker.exit_code != 0
        stage.start("b")
    stage.wait("its end recorded", lambda: ended(stage, "t/ends"), 60)
    stage.trigger("t/after")
    stage.wait_kind("t/after", "succeeded")
    stage.check_no_overlap()


def ended(stage: Stage, task: str) -> bool:
    state = stage.world.state(task)
    return state is not None and state["status"] == "idle" and "last" in state
