"""Alerts and counts, on a real broker, of what real workers do and do not do."""

from __future__ import annotations

import signal
from collections import Counter

from fencepost.codec import loads
from fencepost.core.ids import partition_of
from fencepost.core.schedule import Every
from fencepost.core.task import CommandHandler, Definition, PythonHandler
from tests.kafka.lane.harness import wait_until
from tests.scenarios.stage import Stage, python_task
from tests.scenarios.views_process import started

VIEWS = ("views", "--late", "2s", "--stuck", "1500ms", "--every", "300ms")


def alerts(stage: Stage) -> list[tuple[str, str, str]]:
    """(task, ID, status) in the order of each partition."""
    found = []
    for record in stage.world.records(stage.world.topics.alerts):
        alert = loads(record.value or b"{}")
        assert record.partition == partition_of(record.key or b"", stage.world.info.partitions)
        found.append((alert["task"], alert["id"], alert["status"]))
    return found


def wait_alert(stage: Stage, task: str, begins: str, status: str) -> None:
    def told() -> bool:
        return any(each[0] == task and each[1].startswith(begins) and each[2] == status for each in alerts(stage))

    stage.wait(f"{task}: {begins} {status}", told)


def test_failures_stuck_runs_and_work_that_nobody_starts_are_told_once_though_the_views_are_killed(
    stage: Stage,
) -> None:
    enough = stage.folder / "enough"
    stage.start("a", "--allow", "/bin/false")
    stage.all_hold("a")
    stage.define(
        Definition("bad", CommandHandler(("/bin/false",))),
        Definition("orphan", PythonHandler("nobody_has_this_function")),
        python_task("long", until=enough),
        python_task("good"),
    )
    with started(stage, "first", *VIEWS) as first:
        first.wait_ready()
        for task in ("bad", "bad", "orphan", "long", "good"):
            stage.trigger(task)
        wait_alert(stage, "long", "stuck:1", "raised")
        wait_alert(stage, "orphan", "stuck:work:", "raised")
        stage.wait("two failures", lambda: stage.world.kinds("bad").count(("failed", 2)) == 1)
        first.stop(signal.SIGKILL)
    stage.trigger("bad")  # while nobody looks
    with started(stage, "second", *VIEWS) as second:
        second.wait_ready()
        wait_alert(stage, "bad", "failing:3", "raised")
        stage.trigger("bad")
        stage.wait("a fourth failure", lambda: ("failed", 4) in stage.world.kinds("bad"))
        gauge = b'fencepost_views_open_alerts{kind="stuck"} 2.0'
        stage.wait("it is counted", lambda: gauge in second.page("/metrics")[1])
        listed = loads(stage.cli("alerts", "--open", "--json").stdout.encode())["alerts"]
        assert {(alert["task"], alert["kind"]) for alert in listed} == {
            ("bad", "failing"), ("long", "stuck"), ("orphan", "stuck"),
        }  # fmt: skip
        enough.touch()
        wait_alert(stage, "long", "stuck:1", "cleared")
        stage.client.cancel("orphan")
        wait_alert(stage, "orphan", "stuck:work:", "cleared")
        assert second.stop() == 0
    assert set(Counter(alerts(stage)).values()) == {1}
    assert not [each for each in alerts(stage) if each[0] == "good"]
    listed = stage.cli("alerts", "--task", "bad").stdout
    assert "3 failures in a row, the last: " in listed
    (row, everything) = loads(stage.cli("stats", "--task", "bad", "--json").stdout.encode())["tasks"]
    assert (row["task"], row["started"], row["failed"], row["succeeded"]) == ("bad", 4, 4, 0)
    assert row["took_p50_s"] > 0
    assert everything["started"] == 4
    assert "good" in stage.cli("stats").stdout


def test_slots_that_nobody_fires_are_told_while_no_worker_lives(stage: Stage) -> None:
    with started(stage, "views", *VIEWS) as views:
        stage.start_all("a")
        stage.define(python_task("tick", schedule=Every(0.5)))
        stage.wait_line("tick", "end")
        views.wait_ready()
        stage.workers["a"].kill()
        wait_alert(stage, "tick", "late:", "raised")
        stage.start_all("b")
        wait_alert(stage, "tick", "late:", "cleared")
        wait_alert(stage, "tick", "missed:", "once")
        views.stop()
    told = Counter(alerts(stage))
    assert set(told.values()) == {1}
    late = {about for _, about, _ in told if about.startswith("late:")}
    assert {(about, status) for _, about, status in told if about in late} >= {(about, "raised") for about in late}


def test_a_new_views_process_does_not_tell_of_the_past_and_takes_over_at_once(stage: Stage) -> None:
    stage.start("a", "--allow", "/bin/false")
    stage.all_hold("a")
    stage.define(Definition("bad", CommandHandler(("/bin/false",))))
    for _ in range(4):
        stage.trigger("bad")
    stage.wait("four failures", lambda: ("failed", 4) in stage.world.kinds("bad"))
    with started(stage, "one", *VIEWS) as one, started(stage, "two", *VIEWS) as two:
        one.wait_ready()
        two.wait_ready()
        assert alerts(stage) == []
        one.stop()
        stage.trigger("bad")
        wait_alert(stage, "bad", "failing:5", "raised")
        two.stop()
    wait_until("nothing else", lambda: alerts(stage) == [("bad", "failing:5", "raised")])


def test_a_pool_has_alerts_of_its_own(stage: Stage) -> None:
    assert "no alerts" in stage.cli("alerts").stdout
    refused = stage.cli("alerts", "--pool", "gpu", expect=1)
    assert "fencepost init" in refused.stderr
    stage.cli("init", "--pool", "gpu")
    assert "no alerts" in stage.cli("alerts", "--pool", "gpu").stdout
    assert "(all)" in stage.cli("stats", "--pool", "gpu").stdout
