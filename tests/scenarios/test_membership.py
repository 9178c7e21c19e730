"""Kind 5: rebalances, stops, and the processes of runs."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

from fencepost.core.schedule import Every
from fencepost.core.task import CommandHandler, Definition, Isolation, OnInterruption
from tests.scenarios.stage import SESSION_S, Stage, python_task

if TYPE_CHECKING:
    from fencepost.broker import Cluster


pytestmark = pytest.mark.faults


def test_r01_a_worker_frozen_for_two_sessions_loses_its_runs_and_joins_again(stage: Stage) -> None:
    stage.start_all("a", "b")
    worker, task = stage.workers["a"], stage.task_of("a")
    stage.trigger(task, payload={"seconds": 60, "stubborn": True})
    stage.wait_line(task)
    worker.freeze()
    until_s = time.monotonic() + 2 * SESSION_S
    stage.trigger(task, payload={"seconds": 0.1})
    stage.wait("two sessions over", lambda: time.monotonic() > until_s)
    stage.wait_line(task, count=2)  # elsewhere
    worker.thaw()
    # Which partitions the woken one is given is the coordinator's choice; with the task's among them `b` would let its
    # run end first, up to the handover limit.
    stage.cli("cancel", task)
    stage.wait("all of it ended", lambda: (stage.world.state(task) or {}).get("status") == "idle")
    stage.all_hold("a", "b")
    assert worker.exit_code is None
    assert "Traceback" not in worker.log_text()
    interrupted = [event for event in stage.world.history(task) if event["kind"] == "interrupted"]
    assert [(event["epoch"], event["cause"]) for event in interrupted] == [(1, "lost")]
    begun = stage.began(task)
    assert begun[0].worker == "a"
    assert {line.worker for line in begun[1:]} == {"b"}
    stage.check_no_overlap()  # not even the frozen one's run after it was woken
    again = stage.task_of("a")
    stage.trigger(again)
    stage.wait_kind(again, "succeeded")


def test_r03_restarts_of_one_worker_disturb_no_other(stage_of: Callable[..., Stage]) -> None:
    """Five workers; on one a long run, on three a slot every two seconds; the fifth is restarted three times."""
    stage = stage_of(partitions=5)
    quiet = ("one", "two", "three")
    stage.start_all("long", *quiet, "r0")
    enough = stage.folder / "enough"
    long = stage.task_of("long", "long")
    ticks = {name: stage.task_of(name, "tick") for name in quiet}
    stage.define(python_task(long, until=enough), *(python_task(task, schedule=Every(2)) for task in ticks.values()))
    stage.trigger(long)
    for task in (long, *ticks.values()):
        stage.wait_line(task)
    for turn in range(3):
        stage.workers[f"r{turn}"].signal(signal.SIGTERM)
        assert stage.wait_ended(stage.workers[f"r{turn}"]) == 0
        stage.start(f"r{turn + 1}")
        stage.all_hold("long", *quiet, f"r{turn + 1}")
    enough.touch()
    stage.wait_kind(long, "succeeded", epoch=1)
    assert [kind for kind, _ in stage.world.kinds(long) if kind != "defined"] == ["started", "succeeded"]
    for name, task in ticks.items():
        stage.cli("delete", task)
        events = stage.world.history(task)
        assert not [event for event in events if event["kind"] in ("interrupted", "missed", "skipped")], (name, events)
        slots = [line.slot_ms for line in stage.began(task)]
        assert slots == list(range(slots[0], slots[-1] + 1, 2000))  # type: ignore[operator,arg-type]
        late_s = max(event.get("waited_s", 0.0) for event in events)
        assert late_s < SESSION_S, f"{name} was {late_s} s late"  # the whole cluster standing still would be a session
    stage.check_no_overlap()


def test_r05_a_stop_ends_although_the_broker_does_not_answer(stage: Stage, kafka: Cluster) -> None:
    stop_limit_s = 2.0
    stage.start_all("a", stop_limit_s=stop_limit_s)
    worker = stage.workers["a"]
    stage.trigger("t/long", payload={"seconds": 600, "stubborn": True})
    stage.wait_line("t/long")
    kafka.freeze()
    try:
        worker.signal(signal.SIGTERM)
        code = stage.wait_ended(worker, 60)
        stage.wait("nothing of it left", lambda: not worker.left_behind())
        written = len(stage.lines("t/long"))
    finally:
        kafka.thaw()
    assert code in (0, 1, 3)
    stage.start_all("b")
    stage.wait_line("t/long", count=2)  # taken up by the next one
    stage.cli("cancel", "t/long")
    assert [line.epoch for line in stage.lines("t/long")].count(1) == written
    stage.check_no_overlap()


TRAPS_TERM = 'trap "exit 0" TERM; echo "$FENCEPOST_EPOCH" >>"$WITNESS"; while :; do sleep 0.05; done'


def test_r09_a_run_that_exits_with_zero_when_stopped_is_no_success(stage: Stage) -> None:
    """Over its time limit, by the stop of its worker, by the fence: each under its own name, and none follows."""
    stage.start("a", "--allow", "/bin/sh", stop_limit_s=0.5)
    stage.start("b", "--allow", "/bin/sh")
    stage.all_hold("a", "b")
    timed, stopped, fenced = (stage.task_of(name, f"trap-{name}") for name in ("a", "a", "b"))
    files = {task: stage.folder / f"{number}.txt" for number, task in enumerate((timed, stopped, fenced))}

    def trap(task: str, **fields: object) -> Definition:
        handler = CommandHandler(("/bin/sh", "-c", TRAPS_TERM), (("WITNESS", str(files[task])),))
        return Definition(
            task,
            handler,
            isolation=Isolation.OWN,
            on_interruption=OnInterruption.SKIP,
            **fields,  # type: ignore[arg-type]
        )

    stage.define(trap(timed, timeout_s=1.0), trap(stopped), trap(fenced))
    for task in files:
        stage.trigger(task)
    for task, file in files.items():
        stage.wait(f"the command of {task} at work", file.exists)
    stage.wait_kind(timed, "timed_out")
    stage.workers["a"].signal(signal.SIGTERM)
    assert stage.wait_ended(stage.workers["a"]) == 0
    assert stage.wait_kind(stopped, "interrupted")["cause"] == "stopped"
    stage.start("c", "--allow", "/bin/sh")
    stage.all_hold("b", "c")
    if stage.holder(fenced) == "b":
        stage.workers["b"].freeze()
    assert stage.wait_kind(fenced, "interrupted")["cause"] in ("lost", "handover")
    stage.workers["b"].thaw()
    stage.all_hold("b", "c")
    for task, file in files.items():
        assert file.read_text().split() == ["1"], task
        assert "succeeded" not in [kind for kind, _ in stage.world.kinds(task)]
        stage.trigger(f"t/{task}")
        stage.wait_kind(f"t/{task}", "succeeded")
    assert (stage.world.state(fenced) or {})["last"]["outcome"] == "interrupted"


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""


def test_r07_time_outs_and_double_forks_leave_nothing_behind(stage: Stage) -> None:
    """Many more of them, with counted descriptors, run on the guard alone (tests/worker)."""
    stage.start("b", "--allow", sys.executable, "--allow", "/bin/sleep")
    stage.all_hold("b")
    limits = [f"limit-{number}" for number in range(15)]
    forks = [f"fork-{number}" for number in range(15)]
    own = {"isolation": Isolation.OWN}
    stage.define(
        *(
            Definition(task, CommandHandler(("/bin/sleep", "600")), timeout_s=0.2, grace_s=0.1, **own)
            for task in limits
        ),
        *(Definition(task, CommandHandler((sys.executable, "-S", "-c", DAEMON)), **own) for task in forks),
    )
    worker = stage.workers["b"]
    before = {process.pid for process in worker.family()}
    for task in (*limits, *forks):
        stage.trigger(task)
    for task in limits:
        stage.wait_kind(task, "timed_out")
    for task in forks:
        stage.wait_kind(task, "succeeded")

    def clean() -> bool:
        family = worker.family()
        return len(family) <= len(before) and all(process.status() != psutil.STATUS_ZOMBIE for process in family)

    stage.wait("no zombie and no process more than before", clean)


def test_r11_a_run_may_use_a_client_of_its_own_and_fork(stage: Stage) -> None:
    stage.start_all("a")
    topic = f"{stage.world.settings.namespace}.logs"
    where = {"bootstrap": stage.world.bootstrap, "topic": topic}
    for task in ("kafka/own", "shared-kafka/one", "shared-kafka/two"):
        stage.trigger(task, payload=where)
        result = stage.wait_kind(task, "succeeded")["result"]
        assert result == {"inherited": [], "left": 0, "child": 0}
    sent = [record.value for record in stage.world.records(topic) if record.key == b"key"]
    assert sorted(sent) == [b"child"] * 3 + [b"parent"] * 3  # type: ignore[type-var]
    # The worker itself lives on, and so do its clients.
    stage.trigger("t/after")
    stage.wait_kind("t/after", "succeeded")
