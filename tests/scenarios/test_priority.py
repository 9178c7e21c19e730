"""Kind 8: scale and fairness."""

from __future__ import annotations

import time
from pathlib import Path

from fencepost.core.schedule import Every, Once
from tests.scenarios.stage import Stage, python_task

CROWD = 400
MANY = 1500


def on_one_partition(stage: Stage, prefix: str, count: int) -> list[str]:
    """IDs that all lie on partition 0."""
    names = (f"t/{prefix}{number}" for number in range(100 * count))
    found = [name for name in names if stage.world.partition(name) == 0]
    assert len(found) >= count
    return found[:count]


def test_p01_tasks_come_and_go_among_many_and_no_slot_of_the_others_is_lost(stage: Stage) -> None:
    """Thousands of schedules that rest, a few that are busy, and while they are, others are defined and deleted."""
    stage.start_all("a", "b")
    stage.define(*(python_task(f"rests{number}", schedule=Every(86_400)) for number in range(MANY)))
    busy = [f"busy{number}" for number in range(4)]
    stage.define(*(python_task(task, schedule=Every(2)) for task in busy))
    for task in busy:
        stage.wait_line(task)
    for number in range(8):
        stage.define(python_task(f"comes{number}", schedule=Every(2)))
        stage.wait_line(f"comes{number}")
        stage.client.delete(f"comes{number}")
    for number in range(8):
        stage.wait_kind(f"comes{number}", "deleted")
    until_ms = int(time.time() * 1000)
    for task in busy:
        stage.wait(f"a slot of {task} after that", lambda task=task: newest_slot(stage, task) > until_ms)
        stage.check_slots(task, 2000, until_ms)
    stage.check_no_overlap()


def newest_slot(stage: Stage, task: str) -> int:
    return max((line.slot_ms or 0 for line in stage.lines(task) if line.what == "end"), default=0)


def test_p03_a_crowd_at_one_moment_runs_once_each_and_moves_no_partition(stage: Stage) -> None:
    workers = stage.start_all("a", "b")
    assigned = [len(worker.said("assigned")) for worker in workers]
    at = Once((int(time.time()) + 6) * 1000)
    crowd = [f"midnight{number}" for number in range(CROWD)]
    stage.define(*(python_task(task, schedule=at, seconds=0.02) for task in crowd))
    for task in crowd:
        stage.wait_line(task, "end", limit_s=120)
    assert all(len(stage.began(task)) == 1 for task in crowd)
    assert [len(worker.said("assigned")) for worker in workers] == assigned
    stage.check_no_overlap()


def test_p05_what_is_not_urgent_runs_though_urgent_work_keeps_coming(stage: Stage, tmp_path: Path) -> None:
    """One runner. Three levels are made up for by half a minute; until then at least two urgent requests wait."""
    stage.start("a", "--slots", "1")
    stage.all_hold("a")
    names = on_one_partition(stage, "urgent", 300)
    (low,) = on_one_partition(stage, "low", 1)
    for name in names[:3]:
        stage.trigger(name, priority=0, payload={"seconds": 1.2})
    stage.wait_line(names[0])
    stage.trigger(low, priority=3, payload={"seconds": 0.1})
    fed = 3
    until_s = time.monotonic() + 150
    while not stage.began(low):
        assert time.monotonic() < until_s, "the one that is not urgent starved"
        if fed - sum(bool(stage.began(name)) for name in names[:fed]) < 3:
            stage.trigger(names[fed], priority=0, payload={"seconds": 1.2})
            fed += 1
        time.sleep(0.05)
    assert fed > 5  # urgent ones that came later went before it for a while
    assert any(not stage.began(name) for name in names[:fed])  # and it went before others in the end


def test_p05_requests_of_one_level_start_in_the_order_they_were_sent(stage: Stage) -> None:
    stage.start("a", "--slots", "1")
    stage.all_hold("a")
    names = on_one_partition(stage, "same", 60)
    for name in names:
        stage.trigger(name, payload={"seconds": 0.01})
    for name in names:
        stage.wait_line(name, "end")
    began = [line for name in names for line in stage.began(name)]
    assert len(began) == len(names)
    assert [line.task for line in sorted(began, key=lambda line: line.at_ns)] == names
