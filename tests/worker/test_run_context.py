"""A RunContext made by hand, as users' own tests do."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.run_context import RunContext


def test_one_made_by_hand_needs_only_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    ctx = RunContext("report")
    assert (ctx.task_id, ctx.epoch, ctx.attempt, ctx.payload, dict(ctx.headers)) == ("report", 1, 1, None, {})
    assert ctx.scheduled_for is None
    assert ctx.deadline is None
    assert ctx.remaining_s is None
    assert not ctx.cancelled
    ctx.checkpoint({"page": 3})
    assert ctx.last_checkpoint == {"page": 3}
    ctx.log("a line")
    assert capsys.readouterr().out == "a line\n"
    assert repr(ctx) == "RunContext(task_id='report', epoch=1, attempt=1)"


def test_times_know_their_zone() -> None:
    limit = time.clock_gettime(time.CLOCK_BOOTTIME) + 60.0
    ctx = RunContext("report", scheduled_for_ms=1_774_000_000_123, deadline_boot_s=limit)
    assert ctx.scheduled_for == datetime(2026, 3, 20, 9, 46, 40, 123_000, tzinfo=UTC)
    assert ctx.remaining_s is not None
    assert 0 < ctx.remaining_s <= 60.0
    assert ctx.deadline is not None
    assert datetime.now(UTC) < ctx.deadline <= datetime.now(UTC) + timedelta(seconds=60)
