"""Kind 7 and the forms of schedules: clocks, zones and slots, on a real broker with real workers."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fencepost.core.schedule import Adjusted, Cron, Every, several
from fencepost.core.times import format_ms, parse_rfc3339
from tests.scenarios.stage import Stage, python_task
from tests.scenarios.zone_data import release

pytestmark = pytest.mark.faults

SANTIAGO = "America/Santiago"


def test_the_zone_data_made_here_say_what_they_should(tmp_path: Path) -> None:
    folder = release(tmp_path / "made", "2022a", {"America/Santiago": -4, "Asia/Tokyo": 9})
    for zone, hours in (("America/Santiago", -4), ("Asia/Tokyo", 9), ("Etc/UTC", 0)):
        with (folder / zone).open("rb") as data:
            made = ZoneInfo.from_file(data)
        assert datetime(2026, 12, 1, tzinfo=made).utcoffset() == timedelta(hours=hours)


def test_k05_workers_with_other_zone_data_run_each_slot_once_and_are_warned_of(stage: Stage, tmp_path: Path) -> None:
    """Under the old data a daily slot comes in 25 s; under the new data it was an hour ago, and comes tomorrow."""
    old = release(tmp_path / "old", "2022a", {SANTIAGO: 0})
    new = release(tmp_path / "new", "2022c", {SANTIAGO: 1})
    stage.start_all("a", PYTHONTZPATH=str(old))
    slot_s = int(time.time()) + 25
    slot = datetime.fromtimestamp(slot_s, UTC)
    stage.define(python_task("nightly", schedule=Cron(f"{slot.second} {slot.minute} {slot.hour} * * *", SANTIAGO)))
    armed = stage.wait("it is armed", lambda: (stage.world.state("nightly") or {}).get("next_slot"))
    assert parse_rfc3339(armed) == slot_s * 1000
    b = stage.start("b", PYTHONTZPATH=str(new))
    stage.wait("b serves something", lambda: b.ready() and "b" in stage.holders().values())
    # The table warns as soon as both have told of themselves, b's log with its first record after that.
    stage.wait("b warns", lambda: b.said("workers have different time data"))
    releases = b.said("workers have different time data")[0]["releases"]
    assert sorted(name.split(",")[0] for name in releases) == ["tzdata 2022a", "tzdata 2022c"]
    told = stage.cli("workers")
    assert "2022a" in told.stdout
    assert "warning: workers have different time data: tzdata 2022a" in told.stderr
    stage.workers["a"].kill()
    stage.wait_line("nightly", "end", limit_s=90)
    after = stage.wait(
        "the next one is armed",
        lambda: (found := (stage.world.state("nightly") or {}).get("next_slot")) != armed and found,
    )
    assert [line.slot_ms for line in stage.began("nightly")] == [slot_s * 1000]
    # The next one is by whoever owned the task then: tomorrow at the same time, or an hour before by the new data.
    assert parse_rfc3339(after) in {(slot_s + 86_400) * 1000, (slot_s + 82_800) * 1000}
    starts = [event for event in stage.world.history("nightly") if event["kind"] == "started"]
    assert [event["slot"] for event in starts] == [format_ms(slot_s * 1000)]
    stage.cli("verify")


def test_k03_slots_while_every_worker_stood_still_are_one_record_and_caught_up_by_rule(stage: Stage) -> None:
    worker = stage.start_all("a")[0]
    stage.define(python_task("often", schedule=Every(1), catch_up_s=600))
    stage.wait_line("often", "end", 2)
    worker.freeze()
    until_s = time.monotonic() + 12
    stage.wait("it stood still for a while", lambda: time.monotonic() > until_s)
    worker.thaw()
    thawed_ms = int(time.time() * 1000)
    stage.wait("slots again", lambda: any((line.slot_ms or 0) > thawed_ms for line in stage.began("often")), 90)
    missed = [event for event in stage.world.history("often") if event["kind"] == "missed" and event["count"] >= 8]
    assert len(missed) == 1
    assert parse_rfc3339(missed[0]["last"]) - parse_rfc3339(missed[0]["first"]) == (missed[0]["count"] - 1) * 1000
    stage.check_slots("often", 1000, thawed_ms)
    stage.cli("verify")
    stage.check_no_overlap()


def test_u01_what_next_shows_is_what_runs_whatever_zones_shell_and_worker_are_in(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.start_all("a", TZ="Asia/Tokyo")
    stage.define(
        python_task("zoned", schedule=Cron("*/2 * * * * *", "Australia/Lord_Howe")),
        python_task("several", schedule=several([Every(4), Cron("1/4 * * * * *"), Adjusted(Every(4), jitter_s=2)])),
    )
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        for task in ("zoned", "several"):
            stage.wait_line(task)
            shown = [parse_rfc3339(line) for line in stage.cli("next", task, "--count", "5").stdout.split()]
            stage.wait(f"{task} came so far", lambda: (stage.began(task)[-1].slot_ms or 0) >= shown[-1])  # noqa: B023
            ran = {line.slot_ms for line in stage.began(task) if line.slot_ms is not None}
            assert {slot_ms for slot_ms in ran if shown[0] <= slot_ms <= shown[-1]} <= set(shown)
            # On a busy machine a slot may be missed, or left out while one waits: it was a slot all the same.
            left_out = [
                (
                    parse_rfc3339(event.get("first", event.get("slot"))),
                    parse_rfc3339(event.get("last", event.get("slot"))),
                )
                for event in stage.world.history(task)
                if event["kind"] == "missed" or (event["kind"] == "skipped" and "slot" in event)
            ]
            for slot_ms in shown:
                assert slot_ms in ran or any(first <= slot_ms <= last for first, last in left_out), format_ms(slot_ms)
    finally:
        monkeypatch.undo()
        time.tzset()
    stage.cli("verify")


def test_a_crontab_is_imported_applied_and_its_commands_run_as_cron_would_run_them(
    stage: Stage, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (tmp_path / "tab").write_text(
        f"SHELL=/bin/sh\nNAME='x y'\n"
        f'0 0 1 1 * cat > {out}-empty; echo "$NAME" 100\\% > {out}-env\n'
        f"0 0 1 1 * sort > {out}-input%b%a\n"
        f"*/2 * * * * true\n"
    )
    stage.start("a", "--allow", "/bin/sh")
    stage.all_hold("a")
    imported = subprocess.run(
        [sys.executable, "-m", "fencepost.cli.main", "import", "crontab", str(tmp_path / "tab")],
        capture_output=True,
        check=True,
        timeout=60,
    )
    (tmp_path / "tasks.toml").write_bytes(imported.stdout)
    assert "3 created" in stage.cli("apply", str(tmp_path / "tasks.toml")).stdout
    for task in ("cron/out-empty", "cron/out-input"):
        stage.cli("trigger", task, "--wait", "--timeout", "60")
    assert (tmp_path / "out-empty").read_text() == ""
    assert (tmp_path / "out-env").read_text() == "x y 100%\n"
    assert (tmp_path / "out-input").read_text() == "a\nb\n"
    shown = stage.cli("next", "cron/true", "--count", "1").stdout
    assert parse_rfc3339(shown.strip()) % 120_000 == 0
