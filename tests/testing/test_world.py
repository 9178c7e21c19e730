"""What only a world has: its clock, its stand-ins, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost import App, Command, Cron, Retry, RunContext, RunFailed, every
from fencepost.codec import BadRecord
from fencepost.core.task import Definition, HttpHandler, PythonHandler
from fencepost.testing import Run, World, world
from fencepost.testing.owner import Endless
from tests.testing.judged import findings

HOUR = timedelta(hours=1)


@pytest.fixture
def app() -> App:
    return App("test")


def test_two_days_pass_in_a_moment_and_what_ran_is_told(app: App) -> None:
    @app.task("report", schedule=Cron("0 2 * * *", time_zone="Europe/Berlin"))
    async def report(ctx: RunContext) -> str:
        await asyncio.sleep(1800)
        return f"{ctx.scheduled_for:%d.%m.}"

    with world(app, at="2026-03-28T12:00:00+01:00") as made:
        made.advance("2d")
        # On the 29th 02:00 does not exist there: it comes right after the gap.
        assert [(run.slot, run.outcome, run.result) for run in made.runs("report")] == [
            (datetime(2026, 3, 29, 1, tzinfo=UTC), "succeeded", "29.03."),
            (datetime(2026, 3, 30, 0, tzinfo=UTC), "succeeded", "30.03."),
        ]
        assert [run.ended - run.started for run in made.runs() if run.ended] == [HOUR / 2, HOUR / 2]
        assert made.now == datetime(2026, 3, 30, 11, tzinfo=UTC)
        assert findings(made) == []


def test_a_run_that_is_on_has_no_end_yet(app: App) -> None:
    @app.task("long")
    def long(ctx: RunContext) -> None:
        time.sleep(3600)

    with world(app) as made:
        app.trigger("long")
        (run,) = made.runs()
        assert (run.epoch, run.outcome, run.ended, made.status("long")) == (1, None, None, "running")
        made.advance(HOUR)
        assert made.runs()[0].outcome == "succeeded"
    assert isinstance(run, Run)


def test_an_app_asks_its_world_and_gets_its_own_client_back(app: App) -> None:
    @app.task("hello")
    def hello(ctx: RunContext) -> Any:
        return ctx.payload

    with world(app) as made:
        assert app.trigger("hello", {"n": 1}, delay="1h").result() == {"n": 1}
        assert made.now == datetime(2026, 1, 1, 1, tzinfo=UTC)
        app.pause("hello")
        with pytest.raises(TimeoutError):
            app.trigger("hello").result(timeout=60)
        app.resume("hello")
        assert made.runs()[-1].outcome == "succeeded"
        with pytest.raises(BadRecord, match="priority"):
            app.trigger("hello", priority=12)
    assert app._client is None


def test_a_run_may_ask_for_others(app: App) -> None:
    @app.task("first")
    def first(ctx: RunContext) -> None:
        app.trigger("second", ctx.payload)
        time.sleep(10)

    @app.task("second")
    def second(ctx: RunContext) -> Any:
        return ctx.payload

    with world(app) as made:
        app.trigger("first", 7)
        made.advance(1)
        assert [(run.task, run.outcome, run.result) for run in made.runs()] == [
            ("first", None, None),
            ("second", "succeeded", 7),
        ]


def test_a_failed_run_is_told_with_its_error_and_its_lines(app: App) -> None:
    @app.task("flaky", retry=Retry(attempts=2, delay_s=60, jitter=0))
    def flaky(ctx: RunContext) -> None:
        ctx.log(f"attempt {ctx.attempt}")
        raise ValueError("no such month")

    with world(app) as made:
        with pytest.raises(RunFailed, match="no such month"):
            app.trigger("flaky").result()
        first, second = made.runs()
        assert second.started - first.started == timedelta(minutes=1)
        assert (first.lines, second.lines) == (("attempt 1",), ("attempt 2",))
        assert "ValueError: no such month" in (second.error or "")
        assert [letter.task for letter in made.dead_letters()] == ["flaky"]
        assert findings(made) == []


def test_time_limits_heartbeats_and_remaining_time_are_the_worlds(app: App) -> None:
    seen: list[Any] = []

    @app.task("limited", timeout="1m", grace_s=5)
    def limited(ctx: RunContext) -> None:
        time.sleep(20)
        seen.append((ctx.remaining_s, ctx.deadline, ctx.cancelled))
        time.sleep(40)
        seen.append((ctx.remaining_s, ctx.cancelled))
        time.sleep(100)  # beyond its grace

    @app.task("silent", heartbeat_s=30)
    def silent(ctx: RunContext) -> None:
        time.sleep(20)
        ctx.heartbeat()
        while not ctx.cancelled:
            time.sleep(1)

    with world(app) as made:
        app.trigger("limited")
        app.trigger("silent")
        made.advance("5m")
        end, quiet = made.runs("limited")[0], made.runs("silent")[0]
        assert (end.outcome, end.ended) == ("timed_out", made.now - timedelta(minutes=5) + timedelta(seconds=65))
        assert (quiet.outcome, quiet.cause) == ("timed_out", "heartbeat")
        assert quiet.ended is not None
        assert 50 <= (quiet.ended - quiet.started).total_seconds() <= 51
    assert seen == [(40.0, datetime(2026, 1, 1, 0, 1, tzinfo=UTC), False), (0.0, True)]


def test_what_a_coroutine_does_at_its_cancellation_takes_time_too(app: App) -> None:
    done: list[str] = []

    @app.task("tidy", grace_s=30)
    async def tidy(ctx: RunContext) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(10)
            done.append("tidied")

    with world(app) as made:
        app.trigger("tidy")
        made.advance(5)
        app.cancel("tidy", "enough")
        made.advance(60)
        (run,) = made.runs()
        assert (run.outcome, run.cause, done) == ("cancelled", "enough", ["tidied"])
        assert run.ended is not None
        assert (run.ended - run.started).total_seconds() == 15


def test_coroutines_run_side_by_side(app: App) -> None:
    @app.task("wait/*")
    async def wait(ctx: RunContext) -> float:
        async with asyncio.timeout(100):
            await asyncio.gather(asyncio.sleep(5), asyncio.sleep(float(ctx.payload)))
        return asyncio.get_running_loop().time()

    with world(app) as made:
        for number in (30, 20, 10):
            app.trigger(f"wait/{number}", number)
        made.advance("1m")
        ends = sorted((run.ended, run.task, run.result) for run in made.runs() if run.ended)
        assert [(task, result) for _, task, result in ends] == [("wait/10", 10.0), ("wait/20", 20.0), ("wait/30", 30.0)]


def test_a_restart_reads_all_back_and_tells_of_what_was_missed(app: App) -> None:
    @app.task("hourly", schedule=every("1h"), catch_up_s=1800)
    def hourly(ctx: RunContext) -> None:
        time.sleep(600)

    with world(app, at="2026-01-01T00:30:00Z") as made:
        made.advance("2h")  # 01:00, 02:00
        made.restart("3h15m")  # 03:00, 04:00, 05:00 pass; the last is younger than half an hour? 05:45: no
        made.advance("1h")
        hours = [run.slot.hour for run in made.runs() if run.slot]
        assert hours == [1, 2, 6]
        (missed,) = [event for event in made.history() if event.kind == "missed"]
        assert (missed.fields["count"], missed.fields["cause"]) == (3, "nobody ran")
        assert [run.epoch for run in made.runs()] == [1, 2, 3]
        assert findings(made) == []


def test_a_crash_waits_for_the_lease_and_a_stop_does_not(app: App) -> None:
    @app.task("long")
    def long(ctx: RunContext) -> None:
        time.sleep(60)

    with world(app) as made:
        app.trigger("long")
        made.advance(10)
        made.restart()
        assert [(run.outcome, run.cause, run.attempt) for run in made.runs()] == [
            ("interrupted", "stopped", 1),
            (None, None, 1),
        ]
        made.advance(10)
        made.restart(crash=True)
        assert made.runs()[-1].outcome is None
        made.advance("5m")
        assert [(run.outcome, run.cause) for run in made.runs()] == [
            ("interrupted", "stopped"),
            ("interrupted", "lost"),
            ("succeeded", None),
        ]
        assert findings(made) == []


def test_commands_and_urls_have_stand_ins_or_wait(app: App) -> None:
    codes = iter([3, 0])
    app.command("job", Command("/bin/job"), retry=Retry(attempts=2, delay_s=1))
    app.command("other", Command("/bin/other"))
    called: list[Any] = []
    call = HttpHandler("https://example.org/hook")
    with world(app, stand_ins={"/bin/job": lambda ctx: next(codes), call.url: called.append}) as made:
        made.define(Definition("hook", call))
        for task in ("job", "other", "hook"):
            app.trigger(task)
        made.advance("1m")
        assert [(run.task, run.outcome) for run in made.runs("job")] == [("job", "failed"), ("job", "succeeded")]
        assert made.runs("job")[0].error == "exit code 3"
        assert made.runs("other") == []
        assert [ctx.task_id for ctx in called] == ["hook"]


def test_slots_bound_what_runs_at_once(app: App) -> None:
    @app.task("t/*")
    def work(ctx: RunContext) -> None:
        time.sleep(10)

    with world(app, slots=2) as made:
        for number in range(5):
            app.trigger(f"t/{number}")
        assert len(made.runs()) == 2
        made.advance(30)
        assert [run.started.second for run in made.runs()] == [0, 0, 10, 10, 20]


def test_the_same_seed_is_the_same_world(app: App) -> None:
    @app.task("flaky", retry=Retry(attempts=5, delay_s=10, jitter=0.5))
    def flaky(ctx: RunContext) -> None:
        raise OSError("no")

    def told(seed: int) -> list[Any]:
        with world(app, seed=seed) as made:
            app.trigger("flaky")
            made.advance("1h")
            return [(run.started, run.trigger) for run in made.runs()]

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_a_run_cannot_move_time_and_a_task_cannot_go_round_at_one_moment(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds: list[World] = []

    @app.task("meddler")
    def meddler(ctx: RunContext) -> None:
        worlds[0].advance("1d")

    @app.task("ball")
    def ball(ctx: RunContext) -> None:
        app.trigger("ball")

    monkeypatch.setattr("fencepost.testing.owner.STEPS_AT_ONCE", 200)
    with world(app) as made:
        worlds.append(made)
        app.trigger("meddler")
        assert "time is moved by the test alone" in (made.runs()[0].error or "")
        with pytest.raises(Endless, match="steps at one moment"):
            app.trigger("ball")


def test_nothing_is_left_when_a_test_fails_in_the_midst(app: App) -> None:
    ended: list[str] = []
    sleep, threads = time.sleep, threading.active_count()

    @app.task("long")
    def long(ctx: RunContext) -> None:
        try:
            time.sleep(1000)
        finally:
            ended.append("long")

    @app.task("longer")
    async def longer(ctx: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("longer")

    with pytest.raises(ZeroDivisionError), world(app) as made:  # noqa: PT012
        app.trigger("long")
        app.trigger("longer")
        made.advance(1)
        raise ZeroDivisionError
    assert sorted(ended) == ["long", "longer"]
    assert time.sleep is sleep
    assert threading.active_count() == threads


def test_a_wait_that_is_in_vain_says_for_what(app: App) -> None:
    with world(app) as made:
        with pytest.raises(TimeoutError, match="not within 1h: the moon is blue"):
            made.advance_until(lambda: False, "1h", "the moon is blue")
        with pytest.raises(ValueError, match="is over"):
            made.advance_to("2025-01-01T00:00:00Z")
        with pytest.raises(ValueError, match="allowed: triggers, control, tasks"):
            made.produce("state", "x", "y")
        made.advance_to("2026-06-01T00:00:00Z")
        assert made.now.month == 6


def test_definitions_are_published_changed_and_deleted(app: App) -> None:
    app.function("f")(lambda ctx: ctx.payload)
    with world(app) as made:
        made.define(Definition("t", PythonHandler("f"), payload=1, schedule=every("1h")))
        made.advance("1h")
        made.define(Definition("t", PythonHandler("f"), payload=2, schedule=every("30m")))
        made.advance("1h")
        made.delete("t")
        made.advance("1d")
        assert [run.result for run in made.runs("t")] == [1, 2, 2]
        assert findings(made) == []


def test_what_is_for_a_pool_runs_in_a_world_like_everything_else(app: App) -> None:
    @app.task("train", pool="gpu")
    def train(ctx: RunContext) -> str:
        return "trained"

    with world(app) as made:
        app.trigger("train")
        assert [run.result for run in made.runs("train")] == ["trained"]
        assert findings(made) == []
