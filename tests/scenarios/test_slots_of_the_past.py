"""Slots that were missed, or are asked for afterwards, on a real broker and over the death of workers (case S05)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fencepost.core.schedule import Every
from fencepost.core.task import CatchUp, Overlap
from tests.scenarios.stage import Stage, python_task

HOUR_MS = 3_600_000


def slots_run(stage: Stage, task: str) -> list[int]:
    """The slots of the runs that came to their end, in the order of their ends."""
    return [line.slot_ms for line in stage.lines(task) if line.what == "end" and line.slot_ms is not None]


def test_s05_every_slot_of_an_outage_runs_once_and_in_order(stage: Stage) -> None:
    first = stage.start("a")
    stage.all_hold("a")
    stage.define(python_task("ledger", schedule=Every(1), catch_up=CatchUp.ALL, catch_up_s=600.0))
    stage.wait_line("ledger", "end", 2)
    first.kill()
    down_ms = int(time.time() * 1000)
    time.sleep(6)
    stage.start("b")
    until_ms = int(time.time() * 1000)
    stage.wait("the outage is caught up with", lambda: max(slots_run(stage, "ledger"), default=0) > until_ms, 90)
    ran = slots_run(stage, "ledger")
    late = [slot_ms for slot_ms in ran if down_ms < slot_ms <= until_ms]
    assert late == list(range(late[0], late[-1] + 1, 1000))
    assert len(late) >= 5
    assert not [event for event in stage.world.history("ledger") if event["kind"] == "missed"]
    stage.check_no_overlap()
    stage.cli("verify")


def test_a_backfill_runs_each_slot_once_over_a_takeover_and_beside_the_schedule(stage: Stage, tmp_path: Path) -> None:
    workers = {worker.name: worker for worker in stage.start_all("a", "b")}
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    begin, end = hour - timedelta(hours=30), hour - timedelta(hours=1)
    stage.define(python_task("hours", schedule=Every(3600), seconds=0.3, overlap=Overlap.SKIP))
    stage.wait_kind("hours", "defined")
    stage.cli("rerun", "hours", "--slot", (begin + timedelta(hours=1)).isoformat(), "--wait")
    stage.cli("backfill", "hours", "--from", begin.isoformat(), "--to", end.isoformat(), "--id", "all")
    stage.wait("some ran", lambda: len(slots_run(stage, "hours")) > 6)
    shown = json.loads(stage.cli("describe", "hours", "--json").stdout)["state"]["backfill"]
    assert shown is None or shown["id"] == "all"
    stage.trigger("hours", id="between")
    workers[stage.holder("hours")].kill()
    last_ms = round(end.timestamp() * 1000)
    stage.wait("the last slot ran", lambda: last_ms in slots_run(stage, "hours"), 120)
    stage.wait("the trigger ran", lambda: any(event.get("trigger") == "between" for event in ended(stage)))
    by_epoch = {event["epoch"]: event for event in ended(stage)}
    asked = [event["slot"] for event in by_epoch.values() if event.get("asked_by") == "backfill all"]
    assert len(asked) == len(set(asked)) == 29  # of thirty: one had run by hand
    assert asked == sorted(asked)
    stage.check_no_overlap()
    stage.cli("verify")


def ended(stage: Stage) -> list[dict[str, object]]:
    return [event for event in stage.world.history("hours") if event["kind"] == "succeeded"]
