"""Kind 1: no run twice, no two at once."""

from __future__ import annotations

import signal
import time

from fencepost.core.schedule import Every
from fencepost.core.task import Overlap
from fencepost.core.times import format_ms
from tests.scenarios.stage import SESSION_S, Stage, python_task

START_AHEAD_S = 7.5 * SESSION_S  # B01: 45 s of delay at a session timeout of 6 s


def now_ms() -> int:
    return int(time.time() * 1000)


def test_b01_a_trigger_for_later_runs_once_however_long_it_waits(stage: Stage) -> None:
    """A delay of several leases and sessions, while the worker that took it in is killed and another one joins."""
    workers = stage.start_all("a", "b", "c")
    run_at_ms = now_ms() + int(START_AHEAD_S * 1000)
    stage.trigger("t/late", run_at=format_ms(run_at_ms))
    stage.wait_kind("t/late", "triggered")
    by_name = {worker.name: worker for worker in workers}
    by_name[stage.holder("t/late")].kill()
    stage.start("d")
    begin = stage.wait_line("t/late", limit_s=START_AHEAD_S + 30)
    stage.wait_kind("t/late", "succeeded")
    assert time.time() * 1000 >= run_at_ms
    # Another one behind it on the same partition: when that one has run, nothing of the first can be on its way.
    follower = next(
        f"t/f{n}" for n in range(100) if stage.world.partition(f"t/f{n}") == stage.world.partition("t/late")
    )
    stage.trigger(follower, delay=SESSION_S)
    stage.wait_line(follower, "end")
    assert stage.began("t/late") == [begin]
    assert [kind for kind, _ in stage.world.kinds("t/late")] == ["triggered", "started", "succeeded"]


def test_b05_a_graceful_stop_keeps_lease_and_membership_until_the_run_has_ended(stage: Stage) -> None:
    """Stopped in three ways at once, each with a run of several sessions on; the fourth worker takes what they give."""
    stage.start_all("term", "int", "twice", "heir")
    seconds = 3 * SESSION_S
    names = ("term", "int", "twice")
    tasks = {name: stage.task_of(name, f"t/{name}") for name in names}
    for task in tasks.values():
        stage.trigger(task, payload={"seconds": seconds, "stubborn": True})
    for task in tasks.values():
        stage.wait_line(task)
    for task in tasks.values():
        stage.trigger(task, payload={"seconds": 0.1})  # for whoever comes next
    for name in names:
        worker = stage.workers[name]
        worker.signal(signal.SIGINT if name == "int" else signal.SIGTERM)
        stage.wait(f"{name} stopping", lambda worker=worker: worker.said("stopping"))
    stage.workers["twice"].signal(signal.SIGTERM)
    for name, task in tasks.items():
        assert stage.wait_ended(stage.workers[name]) == 0
        stage.wait_line(task, "end", 1)
        stage.wait(f"what waited for {task}", lambda task=task: stage.world.kinds(task)[-1][0] == "succeeded")
    stage.check_no_overlap()
    for name in ("term", "int"):
        first, second = stage.began(tasks[name])
        ends = [kind for kind, _ in stage.world.kinds(tasks[name]) if kind != "triggered"]
        assert ends == ["started", "succeeded", "started", "succeeded"]
        assert (first.worker, second.worker) == (name, "heir")
    ends = [event for event in stage.world.history(tasks["twice"]) if event["kind"] == "interrupted"]
    assert [event["cause"] for event in ends] == ["stopped"]
    assert not any(worker.left_behind() for worker in stage.workers.values())


def test_b07_overlap_is_forbidden_in_the_whole_cluster_while_workers_come_and_go(stage: Stage) -> None:
    """A slot every 2 s, runs of 4 s that skip what comes meanwhile; a worker goes and comes, three times."""
    stage.start_all("a", "b", "c")
    stage.define(*(python_task(f"o{n}", seconds=4, schedule=Every(2), overlap=Overlap.SKIP) for n in range(3)))
    for task in ("o0", "o1", "o2"):
        stage.wait_line(task)
    for turn, (name, number) in enumerate((("a", signal.SIGKILL), ("b", signal.SIGTERM), ("c", signal.SIGKILL))):
        known = {task: len(stage.began(task)) for task in ("o0", "o1", "o2")}
        stage.workers[name].signal(number)
        stage.start("def"[turn])
        # On to the next change once every task has begun again somewhere.
        for task, count in known.items():
            stage.wait_line(task, count=count + 1)
    stage.check_no_overlap()
    for task in ("o0", "o1", "o2"):
        events = stage.world.history(task)
        skipped = [event for event in events if event["kind"] == "skipped"]
        assert skipped, task
        assert {event["cause"] for event in skipped} == {"overlap"}
        ran = {line.slot_ms for line in stage.began(task)}
        assert not ran & {slot_ms(event) for event in skipped}
    verdict = stage.cli("verify")
    assert "the promise holds" in verdict.stdout


def last_slot(stage: Stage, task: str) -> str | None:
    return (stage.world.state(task) or {}).get("last_slot")


def slot_ms(event: dict[str, str]) -> int:
    from fencepost.core.times import parse_rfc3339

    return parse_rfc3339(event["slot"])


def test_b09_manual_triggers_and_slots_obey_the_same_overlap_rule(stage: Stage) -> None:
    """While a run that was asked for by hand is on: a command, a record and a slot, under two rules."""
    stage.start_all("a")
    rules = {"skips": Overlap.SKIP, "keeps": Overlap.BUFFER_ONE}
    enough = stage.folder / "enough"
    stage.define(*(python_task(task, until=enough, overlap=rule) for task, rule in rules.items()))
    for task in rules:
        stage.trigger(task, id="first")
    for task in rules:
        stage.wait_line(task)
    slot_at_ms = now_ms() + 2000
    schedule = Every(3600, slot_at_ms)
    stage.define(*(python_task(task, until=enough, overlap=rule, schedule=schedule) for task, rule in rules.items()))
    for task in rules:
        stage.trigger(task, id="by topic")
        stage.cli("trigger", task, "--id", "by command")
    for task in rules:
        stage.wait(f"the slot of {task} decided on", lambda task=task: last_slot(stage, task) == format_ms(slot_at_ms))
    enough.touch()
    for task, epoch in (("skips", 1), ("keeps", 2)):
        stage.wait_kind(task, "succeeded", epoch)
    skipped = [event for event in stage.world.history("skips") if event["kind"] == "skipped"]
    assert {event["cause"] for event in skipped} == {"overlap"}
    assert {event.get("trigger") or event["slot"] for event in skipped} == {
        "by topic",
        "by command",
        format_ms(slot_at_ms),
    }
    # Of the three that came meanwhile one waited, and was run.
    assert len([event for event in stage.world.history("keeps") if event["kind"] == "skipped"]) == 2
    assert [len(stage.began(task)) for task in rules] == [1, 2]
    stage.check_no_overlap()


def test_b11_clocks_that_differ_lose_no_slot_and_repeat_none(stage: Stage) -> None:
    """Two workers whose clocks are ten minutes ahead and behind take over from one whose clock is right."""
    stage.start_all("true")
    ticks = [stage.task_on(number, "tick-") for number in range(4)]
    stage.define(*(python_task(task, schedule=Every(2)) for task in ticks))
    for task in ticks:
        stage.wait_line(task, "end")
    shifted = (stage.start("ahead", bend={"clock_s": 600}), stage.start("behind", bend={"clock_s": -600}))
    differs = "this machine's clock differs from the brokers'"
    stage.wait("both said that their clocks differ", lambda: all(worker.said(differs) for worker in shifted))
    stage.workers["true"].kill()
    stage.all_hold("ahead", "behind")
    before = {task: len(stage.began(task)) for task in ticks}
    for task in ticks:
        stage.wait_line(task, "end", before[task] + 3)
    wall_less_boot_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for task in ticks:
        begun = stage.began(task)
        assert {line.worker for line in begun[before[task] + 1 :]} <= {"ahead", "behind"}
        for line in begun:
            assert line.slot_ms is not None
            assert (line.at_ns + wall_less_boot_ns) / 1e6 >= line.slot_ms - 1000  # none before its true time
        stage.check_slots(
            task, 2000, until_ms=max(line.slot_ms or 0 for line in stage.lines(task) if line.what == "end")
        )
        assert not [event for event in stage.world.history(task) if event["kind"] == "missed" and event["count"] > 10]
