"""`verify` finds what it must, and finds nothing in what the machine itself writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.commands import History
from fencepost.core.events import (
    Defined,
    Ended,
    Event,
    Interrupted,
    Paused,
    Resumed,
    Started,
    Trigger,
    Triggered,
    Woken,
)
from fencepost.core.illegal import IllegalEvent
from fencepost.core.machine import new_task, step
from fencepost.core.schedule import Every, Schedule
from fencepost.core.task import (
    Cause,
    Definition,
    OnInterruption,
    Outcome,
    Overlap,
    PythonHandler,
    Retry,
    Run,
    Status,
    Task,
    TaskState,
)
from fencepost.core.times import format_ms
from fencepost.core.verify import Finding, Kind, PartitionCheck

MINUTE_MS = 60_000
SCHEDULE = Every(60.0)


def started(epoch: int, at_ms: int = 0, **fields: Any) -> History:
    return History("started", epoch, at_ms, {"attempt": 1, "lease_ttl_s": 3.0, **fields})


def ended(epoch: int, kind: str = "succeeded", **fields: Any) -> History:
    return History(kind, epoch, 0, {"attempt": 1, "duration_s": 1.0, **fields})


def state(epoch: int, running: bool = False, nonce: str = "n") -> TaskState:
    run = Run(epoch, 1, "lane", nonce, 3.0, 0) if running else None
    return TaskState("t", epoch, Status.RUNNING if running else Status.IDLE, run)


def check(
    events: Iterable[History],
    known: TaskState | None,
    complete: bool = True,
    owner: tuple[str, bool] | None = ("n", False),
    schedule: Schedule | None = None,
    waiting: Iterable[int] = (),
) -> list[Finding]:
    checker = PartitionCheck(complete, {} if schedule is None else {"t": schedule}, {"t": list(waiting)}, owner)
    if known is not None:
        checker.state(known)
    for event in events:
        checker.event("t", event)
    return checker.finish()[0]


def kinds(findings: list[Finding]) -> list[Kind]:
    return [finding.kind for finding in findings]


def test_runs_one_after_the_other_hold() -> None:
    assert check([started(1), ended(1), started(2), ended(2, "failed")], state(2)) == []


def test_a_run_that_is_on_holds() -> None:
    assert check([started(1), ended(1), started(2)], state(2, running=True)) == []


def test_a_run_begun_before_the_end_of_the_last_is_an_overlap() -> None:
    assert kinds(check([started(1), started(2), ended(1), ended(2)], state(2))) == [Kind.OVERLAP, Kind.NO_START]


def test_an_epoch_started_again_is_found() -> None:
    assert Kind.TWICE in kinds(check([started(1), ended(1), started(1), ended(1)], state(1)))


def test_an_epoch_that_ended_twice_is_found() -> None:
    assert kinds(check([started(1), ended(1), ended(1, "interrupted")], state(1))) == [Kind.TWICE]


def test_an_epoch_below_an_earlier_one_is_found() -> None:
    assert Kind.BACKWARDS in kinds(check([started(5), ended(5), started(3), ended(3)], state(5)))


def test_an_end_without_a_start_is_found_where_history_is_complete() -> None:
    assert kinds(check([ended(4)], state(4))) == [Kind.NO_START]
    assert check([ended(4)], state(4), complete=False) == []


def test_work_that_was_cancelled_between_attempts_is_no_second_end() -> None:
    cancelled = History("cancelled", 1, 0, {"attempt": 1, "cause": "enough"})
    assert check([started(1), ended(1, "failed", retry_at=format_ms(1)), cancelled], state(1)) == []


@pytest.mark.parametrize(
    ("events", "known", "kind"),
    [
        ([started(1), ended(1)], state(2), Kind.STATE),
        ([started(1)], state(1), Kind.STATE),
        ([started(1), ended(1)], None, Kind.STATE),
        ([], state(3, running=True), Kind.STATE),
        ([started(1), ended(1), started(2)], replace(state(2, running=True), run=None), Kind.STATE),
    ],
    ids=["ahead of history", "run left open", "no state", "never started", "no run named"],
)
def test_state_that_history_does_not_bear_out_is_found(
    events: list[History], known: TaskState | None, kind: Kind
) -> None:
    assert kinds(check(events, known)) == [kind]


def test_history_that_went_on_after_the_state_was_read_holds() -> None:
    assert check([started(1), ended(1), started(2)], state(1, running=True)) == []
    assert check([started(1), ended(1), started(2), ended(2)], state(1)) == []


def test_a_state_older_than_what_is_kept_of_history_holds() -> None:
    assert check([], state(7), complete=False) == []


def test_a_run_on_a_partition_that_was_released_has_no_owner() -> None:
    assert kinds(check([started(1)], state(1, running=True), owner=("n", True))) == [Kind.NO_OWNER]


def test_a_run_of_an_earlier_owner_is_only_noted() -> None:
    assert kinds(check([started(1)], state(1, running=True, nonce="old"))) == [Kind.NOTE]


def test_a_task_whose_state_cannot_be_read_is_not_compared() -> None:
    checker = PartitionCheck(True)
    checker.unreadable("t")
    checker.event("t", started(1))
    assert checker.finish()[0] == []


def slot(number: int) -> str:
    return format_ms(number * MINUTE_MS)


def run_of(epoch: int, number: int) -> list[History]:
    return [started(epoch, slot=slot(number)), ended(epoch, slot=slot(number))]


def test_slots_one_after_the_other_hold() -> None:
    assert check([*run_of(1, 10), *run_of(2, 11), *run_of(3, 12)], state(3), schedule=SCHEDULE) == []


def test_a_slot_that_nobody_accounts_for_is_lost() -> None:
    findings = check([*run_of(1, 10), *run_of(2, 12)], state(2), schedule=SCHEDULE)
    assert kinds(findings) == [Kind.SLOT_LOST]
    assert slot(11) in findings[0].text


@pytest.mark.parametrize(
    "told",
    [
        History("skipped", None, 0, {"slot": slot(11), "cause": "overlap"}),
        History("missed", None, 0, {"first": slot(11), "last": slot(11), "count": 1}),
        History("triggered", None, 0, {"slot": slot(11)}),
    ],
    ids=lambda event: event.kind,
)
def test_a_slot_that_was_skipped_missed_or_waits_is_not_lost(told: History) -> None:
    assert check([*run_of(1, 10), told, *run_of(2, 12)], state(2), schedule=SCHEDULE) == []


def test_a_series_of_missed_slots_accounts_for_all_of_them() -> None:
    missed = History("missed", None, 0, {"first": slot(11), "last": slot(500_000), "count": 499_990})
    assert check([*run_of(1, 10), missed, *run_of(2, 500_001)], state(2), schedule=SCHEDULE) == []


def test_slots_told_of_out_of_order_hold() -> None:
    told = History("triggered", None, 0, {"slot": slot(12)})
    events = [*run_of(1, 10), told, *run_of(2, 11), *run_of(3, 12)]
    assert check(events, state(3), schedule=SCHEDULE) == []


def test_a_slot_that_waits_in_the_state_is_not_lost() -> None:
    events = [*run_of(1, 10), History("skipped", None, 0, {"slot": slot(12), "cause": "overlap"})]
    assert kinds(check(events, state(1), schedule=SCHEDULE)) == [Kind.SLOT_LOST]
    assert check(events, state(1), schedule=SCHEDULE, waiting=[11 * MINUTE_MS]) == []


def test_slots_of_an_earlier_definition_are_not_held_against_the_new_one() -> None:
    events = [*run_of(1, 10), History("defined", None, 0, {"changed": True}), *run_of(2, 15), *run_of(3, 16)]
    assert check(events, state(3), schedule=SCHEDULE) == []


def test_a_slot_that_ran_again_after_its_work_was_over_is_found() -> None:
    assert kinds(check([*run_of(1, 10), *run_of(2, 10)], state(2), schedule=SCHEDULE)) == [Kind.SLOT_TWICE]


def test_a_slot_that_ran_again_as_a_retry_holds() -> None:
    first = [started(1, slot=slot(10)), ended(1, "interrupted", slot=slot(10), cause="lost", retry_at=slot(10))]
    assert check([*first, *run_of(2, 10)], state(2), schedule=SCHEDULE) == []


DEFINITIONS = [
    Definition("t", PythonHandler("f"), SCHEDULE, overlap=overlap, on_interruption=on_interruption, retry=retry)
    for overlap in Overlap
    for on_interruption in OnInterruption
    for retry in (Retry(), Retry(attempts=3, delay_s=1.0))
]


@st.composite
def lives(draw: st.DrawFn) -> tuple[Definition, list[tuple[int, str]]]:
    names = ["trigger", "wake", "start", "succeed", "fail", "lose", "pause", "resume"]
    steps = draw(st.lists(st.tuples(st.integers(1, 200_000), st.sampled_from(names)), max_size=60))
    return draw(st.sampled_from(DEFINITIONS)), steps


def event_of(name: str, task: Task) -> Event:
    epoch = task.state.run.epoch if task.state.run is not None else 0
    events: dict[str, Event] = {
        "trigger": Triggered(Trigger("t")),
        "wake": Woken(),
        "start": Started("lane", "n", 3.0),
        "succeed": Ended(epoch, Outcome.SUCCEEDED),
        "fail": Ended(epoch, Outcome.FAILED, error="no"),
        "lose": Interrupted(epoch, Cause.LOST),
        "pause": Paused(),
        "resume": Resumed(),
    }
    return events[name]


@given(lives())
def test_nothing_is_found_in_what_the_machine_itself_writes(life: tuple[Definition, list[tuple[int, str]]]) -> None:
    definition, steps = life
    now_ms = 1_000_000_000
    events: list[History] = []
    task, commands = step(new_task("t"), Defined(definition), now_ms)
    events += [command for command in commands if isinstance(command, History)]
    for wait_ms, name in steps:
        now_ms += wait_ms
        try:
            task, commands = step(task, event_of(name, task), now_ms)
        except IllegalEvent:
            continue
        events += [command for command in commands if isinstance(command, History)]
    works = [*task.waiting, *task.delayed, *([task.state.work] if task.state.work is not None else [])]
    waiting = [work.slot_ms for work in works if work.slot_ms is not None]
    assert check(events, task.state, schedule=SCHEDULE, waiting=waiting) == []
