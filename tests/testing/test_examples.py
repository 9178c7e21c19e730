"""The task files below config/examples, in a world: they say what their comments promise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from fencepost import App, RunContext
from fencepost.app import load_app
from fencepost.cli.taskfile import read_task_files
from fencepost.core.task import Definition
from fencepost.testing import Run, World, world
from tests.docs.test_readme_facts import ROOT
from tests.testing.judged import findings

EXAMPLES = ROOT / "config" / "examples"


def defined(name: str) -> list[Definition]:
    return list(read_task_files([EXAMPLES / name]))


def seconds(later: Run, earlier: Run) -> float:
    return (later.started - earlier.started).total_seconds()


def outcomes(made: World, task: str) -> list[str | None]:
    return [run.outcome for run in made.runs(task)]


def causes(made: World, task: str) -> list[str]:
    return [event.fields["cause"] for event in made.history(task) if event.kind == "skipped"]


def sleeps(duration_s: float, code: int = 0) -> Callable[[RunContext], int]:
    """A stand-in for a command."""

    def run(ctx: RunContext) -> int:
        until_s = duration_s
        while until_s > 0 and not ctx.cancelled:
            time.sleep(1)
            until_s -= 1
        return code

    return run


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return load_app("pipeline:app")


def test_the_pipeline_ends_in_a_mail_every_night(pipeline: App) -> None:
    with world(pipeline, at="2026-01-01T12:00:00+01:00") as made:
        made.define(*defined("pipeline.toml"))
        made.advance("1d")
        (mail,) = made.runs("pictures/mail")
        assert mail.result == "3 pictures for slot:2026-01-02T00:00:00.000Z: a.small.jpg b.small.jpg c.small.jpg"
        assert [run.result for number in range(4) for run in made.runs(f"pictures/count/shard/{number}")] == [
            1,
            1,
            1,
            0,
        ]
        assert [run.result for run in made.runs("pictures/alarm")] == [[]]
        (forgotten,) = [event for event in made.history("pictures/forget") if event.kind == "gathered"]
        assert [(end["worker"], end["result"]) for end in forgotten.fields["result"]] == [
            ("world", "world has forgotten slot:2026-01-02T00:00:00.000Z")
        ]
        assert findings(made) == []


def test_one_bad_picture_ends_in_an_alarm_and_in_no_mail(pipeline: App) -> None:
    with world(pipeline) as made:
        made.define(*defined("pipeline.toml"))
        made.trigger("pictures/list", ["a.jpg", "notes.txt"])
        made.advance("5m")
        assert outcomes(made, "pictures/resize/shard/1") == ["failed"] * 3
        assert [run.result for run in made.runs("pictures/alarm")] == [["pictures/resize", "pictures/gallery"]]
        assert made.runs("pictures/mail") == []
        assert causes(made, "pictures/mail") == ["upstream skipped"]


@pytest.fixture
def busy() -> Callable[..., Any]:
    """A world with the tasks of busy.toml; the stand-in of its command is given by each test."""

    def made(stand_in: Callable[[RunContext], int], **more: Any) -> Any:
        return world(App("busy"), stand_ins={"/bin/echo": stand_in}, **more)

    return made


def test_a_sync_that_takes_longer_than_its_minute_leaves_slots_out(busy: Callable[..., Any]) -> None:
    with busy(sleeps(90)) as made:
        made.define(*defined("busy.toml"))
        made.advance("10m")
        runs = made.runs("busy/sync")
        assert [seconds(after, before) for before, after in pairwise(runs)] == [120] * (len(runs) - 1)
        assert set(causes(made, "busy/sync")) == {"overlap"}


def test_only_the_newest_preview_counts(busy: Callable[..., Any]) -> None:
    with busy(sleeps(60)) as made:
        made.define(*defined("busy.toml"))
        for _ in range(3):
            made.trigger("busy/preview")
            made.advance("10s")
        made.advance("2m")
        assert outcomes(made, "busy/preview") == ["cancelled", "cancelled", "succeeded"]


def test_an_index_that_is_asked_for_all_the_time_runs_in_batches(busy: Callable[..., Any]) -> None:
    sizes: list[int] = []

    def index(ctx: RunContext) -> int:
        if ctx.task_id == "busy/index":
            sizes.append(len(ctx.payloads))
            time.sleep(60)
        return 0

    with busy(index) as made:
        made.define(*defined("busy.toml"))
        for page in range(121):
            made.trigger("busy/index", {"page": page})
        made.advance("10m")
        assert sizes == [1, 50, 50, 20]


@pytest.mark.parametrize(("code", "gaps"), [(1, [10, 20, 40, 80]), (64, [])])
def test_the_bank_is_asked_again_unless_its_answer_is_final(
    busy: Callable[..., Any], code: int, gaps: list[float]
) -> None:
    with busy(lambda ctx: code if ctx.task_id == "busy/bank" else 0) as made:
        made.define(*defined("busy.toml"))
        made.trigger("busy/bank")
        made.advance("1h")
        runs = made.runs("busy/bank")
        assert [seconds(after, before) for before, after in pairwise(runs)] == gaps
        assert len(made.dead_letters()) == 1


def test_a_request_to_the_bank_that_waited_for_half_an_hour_is_left_out(busy: Callable[..., Any]) -> None:
    with busy(sleeps(0)) as made:
        made.define(*defined("busy.toml"))
        made.pause("busy/bank")
        made.trigger("busy/bank")
        made.advance("31m")
        made.resume("busy/bank")
        made.advance("1m")
        assert made.runs("busy/bank") == []
        assert len(causes(made, "busy/bank")) == 1


def test_the_ledger_makes_up_for_a_week(busy: Callable[..., Any]) -> None:
    with busy(sleeps(1)) as made:
        made.define(*defined("busy.toml"))
        made.restart(down="30h")
        made.advance("10m")
        slots = [run.slot for run in made.runs("busy/ledger")]
        assert len(slots) == 30
        assert [after - before for before, after in pairwise(slots)] == [timedelta(hours=1)] * 29


def test_what_is_urgent_and_lost_with_its_worker_is_not_tried_again(busy: Callable[..., Any]) -> None:
    with busy(sleeps(60)) as made:
        made.define(*defined("busy.toml"))
        made.trigger("busy/urgent")
        made.advance(1)
        made.restart(crash=True)
        made.advance("10m")
        assert outcomes(made, "busy/urgent") == ["interrupted"]


def test_two_reports_at_most_are_on_at_once_and_the_vacuum_is_alone() -> None:
    with world(App("reports"), at="2026-01-01T03:00:00Z", stand_ins={"/bin/echo": sleeps(2 * 3600)}) as made:
        made.define(*defined("limits.toml"))
        made.advance("10h")
        runs = sorted((run for run in made.runs() if run.task.startswith("reports/")), key=lambda run: run.started)
        assert [run.started.hour for run in runs] == [4, 4, 6, 8]
        assert runs[-1].task == "reports/vacuum"
        assert findings(made) == []


def test_five_mails_leave_at_once_and_the_others_at_two_seconds_each() -> None:
    with world(App("mails"), stand_ins={"/bin/echo": lambda ctx: 0}) as made:
        (mails,) = (item for item in defined("limits.toml") if item.task == "mails/welcome")
        made.define(mails)
        for _ in range(8):
            made.trigger("mails/welcome")
        made.advance("1m")
        runs = made.runs("mails/welcome")
        assert [round(seconds(run, runs[0])) for run in runs] == [0, 0, 0, 0, 0, 2, 4, 6]


def test_orders_are_sent_as_json_and_health_is_asked_by_day_only() -> None:
    asked: list[Any] = []

    def orders(ctx: RunContext) -> Any:
        asked.append(json.dumps(ctx.payload))
        return {"status": 200, "body": None}

    stand_ins = {"https://api.example.com/orders": orders, "https://api.example.com/health": lambda ctx: None}
    with world(App("http"), at="2026-01-01T00:00:00+01:00", stand_ins=stand_ins) as made:
        made.define(*defined("http.toml"))
        made.trigger("http/orders", {"item": 7})
        made.advance("1d")
        assert asked == ['{"item": 7}']
        assert outcomes(made, "http/orders") == ["succeeded"]
        assert len(made.runs("http/health")) == 12 * 60


def test_what_is_published_was_trained_before() -> None:
    """A world has one pool; that only the pool's workers run the task is shown on a real Kafka by the page on pools."""
    with world(App("pools"), stand_ins={"/bin/echo": sleeps(3600)}) as made:
        made.define(*defined("pools.toml"))
        assert [item.pool for item in defined("pools.toml")] == ["gpu", None]
        made.advance("1d")
        assert [(run.task, run.started.hour) for run in made.runs()] == [("pools/train", 3), ("pools/publish", 4)]


def test_every_example_is_read_by_a_test() -> None:
    known = {"airflow_classic", "tasks", "schedules", "rules", "pipeline", "busy", "limits", "http", "pools"}
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == known
