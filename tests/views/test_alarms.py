"""Alerts and counts from events and states, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.task import Run, Status, TaskState, Work
from fencepost.core.times import format_ms
from fencepost.views.alarms import Alarms, Limits, Pending, take_state, take_work
from fencepost.views.counts import OTHER, TASKS, Counts
from fencepost.wire.alert import KINDS, Alert, decode_alert, encode_alert
from fencepost.wire.history import HistoryRecord
from fencepost.wire.schema import load_schema

T0 = 1_700_000_000_000
SLOT = format_ms(T0)
LIMITS = Limits(failures=3, late_s=60, stuck_s=600)


def event(kind: str, epoch: int | None = None, at_s: float = 0, task: str = "t", **fields: Any) -> HistoryRecord:
    return HistoryRecord(task, kind, epoch, T0 + round(at_s * 1000), "l", "n", fields)


def told(alarms: Alarms, *events: HistoryRecord) -> list[tuple[str, str]]:
    return [(alert.id, alert.status) for each in events for alert in alarms.take(each)]


def failures(first: int, count: int, task: str = "t") -> list[HistoryRecord]:
    return [event("failed", first + number, task=task, error="ValueError: x", attempt=1) for number in range(count)]


def test_so_many_failures_in_a_row_are_told_once_and_cleared_by_a_success() -> None:
    alarms = Alarms(LIMITS)
    assert told(alarms, *failures(1, 2)) == []
    (alert,) = alarms.take(event("timed_out", 3, error="took too long"))
    assert alert == Alert(
        "failing:3", "t", "failing", "raised", T0, "3 failures in a row, the last: took too long", 3, None, 3
    )
    assert told(alarms, *failures(4, 5), event("interrupted", 9, cause="lost")) == []
    assert told(alarms, event("succeeded", 10)) == [("failing:3", "cleared")]
    assert told(alarms, *failures(11, 3)) == [("failing:13", "raised")]


def test_a_success_in_between_and_other_tasks_do_not_count() -> None:
    alarms = Alarms(LIMITS)
    assert told(alarms, *failures(1, 2), event("succeeded", 3), *failures(4, 2), *failures(1, 2, "u")) == []


def test_missed_slots_are_told_unless_the_task_was_paused() -> None:
    alarms = Alarms(LIMITS)
    missed = event("missed", cause="nobody ran", count=4, first=SLOT, last=format_ms(T0 + 3_000))
    (alert,) = alarms.take(missed)
    assert (alert.id, alert.status, alert.count, alert.slot_ms) == (f"missed:{SLOT}", "once", 4, T0)
    assert alarms.take(missed) == []
    assert alarms.take(event("missed", cause="paused", count=4, first=format_ms(T0 + 9_000), last=SLOT)) == []
    assert alarms.open() == []


def test_a_start_that_comes_late_is_told_and_over() -> None:
    alarms = Alarms(LIMITS)
    late = event("started", 2, slot=SLOT, waited_s=60.0, attempt=1)
    assert told(alarms, event("started", 1, waited_s=59.9, attempt=1), late, late) == [
        (f"late:{SLOT}", "raised"),
        (f"late:{SLOT}", "cleared"),
    ]
    assert told(alarms, event("started", 3, waited_s=500.0, attempt=2)) == []  # it waited for its next attempt


def running(epoch: int = 4, **fields: Any) -> TaskState:
    return TaskState("t", epoch, Status.RUNNING, Run(epoch, 1, "w/0", "n", 30.0, T0), **fields)


def look(alarms: Alarms, pending: Pending, at_s: float) -> list[tuple[str, str]]:
    return [(alert.id, alert.status) for alert in alarms.look("t", pending, T0 + round(at_s * 1000))]


def test_a_run_that_goes_on_for_too_long_is_told_until_it_ends() -> None:
    alarms = Alarms(LIMITS)
    assert look(alarms, Pending(running()), 599) == []
    assert look(alarms, Pending(running()), 600) == [("stuck:4", "raised")]
    assert look(alarms, Pending(running()), 700) == []
    assert told(alarms, event("succeeded", 4)) == [("stuck:4", "cleared")]
    assert look(alarms, Pending(running(5)), 1000) == [("stuck:5", "raised")]
    assert look(alarms, Pending(TaskState("t", 5)), 1001) == [("stuck:5", "cleared")]


def test_a_slot_that_nobody_decides_on_is_told_though_there_is_no_event_of_it() -> None:
    alarms = Alarms(LIMITS)
    pending = Pending(TaskState("t", next_slot_ms=T0))
    assert look(alarms, pending, 59) == []
    assert look(alarms, pending, 60) == [(f"late:{SLOT}", "raised")]
    assert told(alarms, event("started", 1, at_s=70, slot=SLOT, waited_s=70.0, attempt=1)) == [
        (f"late:{SLOT}", "cleared")
    ]
    assert look(Alarms(LIMITS), Pending(TaskState("t", next_slot_ms=T0, paused=True)), 600) == []


def test_a_late_slot_that_was_skipped_is_over_when_the_next_one_is_due() -> None:
    alarms = Alarms(LIMITS)
    assert look(alarms, Pending(TaskState("t", next_slot_ms=T0)), 60) == [(f"late:{SLOT}", "raised")]
    assert look(alarms, Pending(TaskState("t", next_slot_ms=T0 + 3_600_000)), 61) == [(f"late:{SLOT}", "cleared")]


def test_work_that_nobody_starts_is_told_but_not_while_the_task_runs_waits_or_is_paused() -> None:
    def kinds(state: TaskState | None, due_s: float = 0) -> list[tuple[str, str]]:
        return look(Alarms(LIMITS), Pending(state, {7: T0 + round(due_s * 1000)}), 600)

    assert kinds(None) == kinds(TaskState("t")) == [("stuck:work:7", "raised")]
    assert kinds(TaskState("t"), due_s=1) == []
    assert kinds(TaskState("t", paused=True)) == []
    assert kinds(TaskState("t", status=Status.BACKOFF)) == []
    assert kinds(TaskState("t", deleted=True)) == []
    assert kinds(TaskState("t", not_before_ms=T0 + 1)) == []


def test_what_was_told_before_a_takeover_is_not_told_again_and_is_still_cleared() -> None:
    first = Alarms(LIMITS)
    history = [event("succeeded", 1), *failures(2, 4)]
    alerts = [alert for each in history for alert in first.take(each)]
    second = Alarms(LIMITS)
    second.begin(history, [decode_alert(encode_alert(alert)) for alert in alerts])
    assert told(second, *failures(6, 3)) == []
    assert told(second, event("succeeded", 9)) == [("failing:4", "cleared")]


def test_failures_before_a_takeover_count() -> None:
    alarms = Alarms(LIMITS)
    alarms.begin(failures(1, 2), [])
    assert told(alarms, *failures(3, 1)) == [("failing:3", "raised")]


def test_only_what_needs_watching_is_kept_of_states() -> None:
    pending: dict[str, Pending] = {}
    take_state(pending, "t", TaskState("t"))
    assert pending == {}
    take_state(pending, "t", running())
    take_work(pending, "t", 3, Work(3, due_ms=5, arrived_ms=9))
    take_work(pending, "t", 4, Work(4, arrived_ms=9))
    assert pending["t"].due_ms == {3: 9, 4: 9}
    take_state(pending, "t", TaskState("t"))
    assert pending["t"].state == TaskState("t")
    for seq in (3, 4, 5):
        take_work(pending, "t", seq, None)
    take_state(pending, "t", TaskState("t"))
    assert pending == {}
    take_state(pending, "t", TaskState("t", paused=True))
    assert pending["t"].state is not None
    take_state(pending, "t", None)
    assert pending == {}


@pytest.mark.parametrize(
    "alert", [Alert("a", "t", "late", "raised", T0, "x"), Alert("a", "t", "missed", "once", T0, "x", 1, T0, 2)]
)
def test_an_alert_comes_back_as_it_was(alert: Alert) -> None:
    assert decode_alert(encode_alert(alert)) == alert


def test_kinds_are_those_of_the_schema() -> None:
    assert tuple(load_schema("alert")["properties"]["kind"]["enum"]) == KINDS


# --- counts ----------------------------------------------------------------------------------------------------------


def test_counts_and_quantiles_of_a_window() -> None:
    counts = Counts(3600)
    for number in range(100):
        counts.add(event("started", number + 1, at_s=number, waited_s=0.01 * (number + 1)))
        counts.add(event("succeeded" if number % 10 else "failed", number + 1, at_s=number, duration_s=2.0))
    counts.add(event("missed", at_s=5, count=7))
    counts.add(event("started", 1, at_s=-7200, waited_s=99.0))  # before the window
    counts.add(event("started", 1, task="u", waited_s=0.0))
    counts.add(event("paused"))
    first, second, everything = counts.rows(T0 + 100_000)
    assert (first.task, second.task, everything.task) == ("t", "u", "(all)")
    assert first.counts == {
        "started": 100, "succeeded": 90, "failed": 10, "timed_out": 0, "cancelled": 0, "interrupted": 0, "skipped": 0,
        "missed": 7,
    }  # fmt: skip
    assert first.waited_p50_s == pytest.approx(0.5, rel=0.1)
    assert first.waited_p99_s == pytest.approx(0.99, rel=0.1)
    assert first.took_p50_s == first.took_p99_s == pytest.approx(2.0, rel=0.1)
    assert (second.waited_p50_s, second.took_p50_s) == (0.001, None)
    assert everything.counts["started"] == 101
    counts.forget(T0 + 100_000)
    assert counts.rows(T0 + 100_000)[0] == first
    counts.forget(T0 + 8_000_000)
    assert [row.task for row in counts.rows(T0 + 8_000_000)] == ["(all)"]


def test_ids_cannot_fill_the_memory() -> None:
    counts = Counts(3600)
    for number in range(TASKS + 50):
        counts.add(event("skipped", task=f"t{number}"))
    rows = {row.task: row.counts["skipped"] for row in counts.rows(T0)}
    assert len(rows) == TASKS + 2
    assert (rows[OTHER], rows["(all)"]) == (50, TASKS + 50)


def test_ids_that_are_forgotten_take_no_room_and_leave_no_alert_open() -> None:
    alarms = Alarms(LIMITS)
    for number in range(20):
        told(alarms, *failures(1, 3, task=f"t{number}"))
    assert len(alarms.open()) == 20
    for number in range(20):
        assert told(alarms, event("forgotten", 3, task=f"t{number}")) == [("failing:3", "cleared")]
    assert alarms.open() == []
    assert alarms._failures == {}


def test_requests_that_ran_in_shards_and_failed_are_told_as_runs_are() -> None:
    alarms = Alarms(LIMITS)
    ends = [event("gathered", at_s=number, outcome="failed", shards=2, failed_shards=[1]) for number in range(3)]
    assert told(alarms, *ends[:2], event("gathered", at_s=2, outcome="cancelled", shards=2)) == []
    (alert,) = alarms.take(ends[2])
    about = f"failing:{format_ms(T0 + 2000)}"
    text = "3 failures in a row, the last: shards [1] did not succeed"
    assert alert == Alert(about, "t", "failing", "raised", T0 + 2000, text, None, None, 3)
    assert decode_alert(encode_alert(alert)) == alert
    assert told(alarms, event("gathered", at_s=9, outcome="succeeded", shards=2)) == [(about, "cleared")]
