"""`verify` finds what it must, and finds nothing in what the machine itself writes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.audit.spill import Spill
from fencepost.core.commands import History
from fencepost.core.events import (
    Cancelled,
    Defined,
    Deleted,
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
from fencepost.core.schedule import Adjusted, Cron, Every, Once, Schedule, several
from fencepost.core.slots import fingerprint_of
from fencepost.core.task import (
    Cause,
    Definition,
    LastRun,
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
from fencepost.core.verify import MAX_FINDINGS, Fence, Fences, Finding, Kind, PartitionCheck, Place, Stamp, Store

MINUTE_MS = 60_000
SCHEDULE = Every(60.0)


def started(epoch: int, at_ms: int = 0, **fields: Any) -> History:
    return History("started", epoch, at_ms, {"attempt": 1, "lease_ttl_s": 3.0, **fields})


def ended(epoch: int, kind: str = "succeeded", **fields: Any) -> History:
    return History(kind, epoch, 0, {"attempt": 1, "duration_s": 1.0, **fields})


def test_runs_of_cycles_without_a_trigger_are_told_apart() -> None:
    """Requests of a task that runs after others have neither a trigger nor a slot; their cycle is what names them."""
    retried = ended(1, "failed", cycle="one", retry_at="2026-01-01T00:00:00.000Z")
    fine = [
        History("triggered", None, 0, {"cycle": "one", "from": "a", "cause": "waits for b"}),
        started(1, cycle="one"), retried, started(2, cycle="one"), ended(2, cycle="one"),
        History("skipped", None, 0, {"cycle": "two", "from": "a", "cause": "upstream failed"}),
        History("missed", None, 0, {"cycle": "three", "count": 1, "cause": "more than 100 cycles wait; not ended: b"}),
        History("fanned_out", None, 0, {"cycle": "four", "shards": 2}),
        History("gathered", None, 0, {"cycle": "four", "shards": 2, "outcome": "failed", "failed_shards": [1]}),
    ]  # fmt: skip
    assert check(fine, state(2)) == []
    (found,) = check([started(1, cycle="one"), retried, started(2, cycle="two"), ended(2, cycle="two")], state(2))
    assert (found.kind, found.epoch) == (Kind.DROPPED, 1)
    twice = check([started(1, cycle="one"), ended(1, cycle="one"), started(1, cycle="two")], state(1))
    assert Kind.TWICE in [found.kind for found in twice]


def state(epoch: int, running: bool = False, nonce: str = "n") -> TaskState:
    run = Run(epoch, 1, "lane", nonce, 3.0, 0) if running else None
    status = Status.RUNNING if running else Status.IDLE
    return TaskState("t", epoch, status, run, schedule_fingerprint=fingerprint_of(SCHEDULE))


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
    for offset, event in enumerate(events):
        checker.event("t", event, offset)
    return checker.finish()[0]


def offsets(finding: Finding) -> list[tuple[str, int]]:
    return [(place.topic, place.offset) for place in finding.places]


def kinds(findings: list[Finding]) -> list[Kind]:
    return [finding.kind for finding in findings]


def test_runs_one_after_the_other_hold() -> None:
    assert check([started(1), ended(1), started(2), ended(2, "failed", given_up="all used up")], state(2)) == []


def test_a_run_that_is_on_holds() -> None:
    assert check([started(1), ended(1), started(2)], state(2, running=True)) == []


def test_a_run_begun_before_the_end_of_the_last_is_an_overlap() -> None:
    (found,) = check([started(1), started(2), ended(1), ended(2)], state(2))
    assert (found.kind, found.epoch, offsets(found)) == (Kind.OVERLAP, 2, [("runs", 0), ("runs", 1)])


def test_an_epoch_started_again_is_found() -> None:
    found = check([started(1), ended(1), started(1), ended(1)], state(1))
    assert (kinds(found), offsets(found[0])) == ([Kind.TWICE], [("runs", 0), ("runs", 2)])


def test_an_epoch_that_ended_twice_is_found() -> None:
    (found,) = check([started(1), ended(1), ended(1, "interrupted", dropped="no")], state(1))
    assert (found.kind, offsets(found)) == (Kind.TWICE, [("runs", 1), ("runs", 2)])


def test_an_epoch_below_an_earlier_one_is_found() -> None:
    found = check([started(5), ended(5), started(3), ended(3)], state(5))
    assert (kinds(found), offsets(found[0])) == ([Kind.BACKWARDS], [("runs", 0), ("runs", 2)])


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
    assert offsets(findings[0]) == [("runs", 0), ("runs", 2)]


@pytest.mark.parametrize(
    "told",
    [
        History("skipped", None, 0, {"slot": slot(11), "cause": "overlap"}),
        History("missed", None, 0, {"first": slot(11), "last": slot(11), "count": 1}),
    ],
    ids=lambda event: event.kind,
)
def test_a_slot_that_was_skipped_or_missed_is_not_lost(told: History) -> None:
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
    told = {"changed": True, "schedule": SCHEDULE.to_json(), "slots_after": slot(14)}
    events = [*run_of(1, 10), History("defined", None, 0, told), *run_of(2, 15), *run_of(3, 16)]
    assert check(events, state(3), schedule=SCHEDULE) == []


def test_history_itself_says_which_schedule_is_to_be_counted_by() -> None:
    def defined(every_s: float | None, after: int) -> History:
        body = None if every_s is None else Every(every_s).to_json()
        return History("defined", None, 0, {"changed": True, "schedule": body, "slots_after": slot(after)})

    events = [defined(60.0, 9), *run_of(1, 10), *run_of(2, 11), defined(120.0, 11), *run_of(3, 12), *run_of(4, 14)]
    assert check([*events, defined(None, 14)], state(4)) == []
    lost = [*events, *run_of(5, 18), defined(60.0, 18), *run_of(6, 20), *run_of(7, 21)]
    assert [found.text[5:29] for found in check(lost, state(7))] == [slot(16), slot(19)]


def test_a_slot_of_the_schedule_before_that_runs_late_is_not_held_against_the_new_one() -> None:
    told = {"changed": True, "schedule": Every(7.0).to_json(), "slots_after": format_ms(11 * MINUTE_MS + 30_000)}
    next_ms = Every(7.0).next_after(11 * MINUTE_MS + 30_000)
    assert next_ms is not None
    late = [History("triggered", None, 0, {"slot": slot(11)}), History("defined", None, 0, told), *run_of(2, 11)]
    fresh = [started(3, slot=format_ms(next_ms)), ended(3, slot=format_ms(next_ms))]
    assert check([*run_of(1, 10), *late, *fresh], state(3), schedule=SCHEDULE) == []


def test_a_definition_with_the_same_schedule_forgives_no_gap() -> None:
    events = [*run_of(1, 10), History("defined", None, 0, {"changed": True}), *run_of(2, 15)]
    assert kinds(check(events, state(2), schedule=SCHEDULE)) == [Kind.SLOT_LOST] * 4


def test_a_slot_that_the_state_decided_on_and_history_does_not_tell_of_is_lost() -> None:
    known = replace(state(1), last_slot_ms=12 * MINUTE_MS)
    assert kinds(check(run_of(1, 10), known, schedule=SCHEDULE)) == [Kind.SLOT_LOST, Kind.SLOT_LOST]
    assert kinds(check(run_of(1, 10), known, schedule=SCHEDULE, waiting=[12 * MINUTE_MS])) == [Kind.SLOT_LOST]


def test_a_slot_that_had_to_wait_and_is_gone_is_lost() -> None:
    told = History("triggered", None, 0, {"slot": slot(11)})
    known = replace(state(2), last_slot_ms=12 * MINUTE_MS)
    events = [*run_of(1, 10), told, *run_of(2, 12)]
    (found,) = check(events, known, schedule=SCHEDULE)
    assert (found.kind, offsets(found)) == (Kind.SLOT_LOST, [("runs", 2)])
    assert check(events, known, schedule=SCHEDULE, waiting=[11 * MINUTE_MS]) == []
    # Told after the state was read: it may wait.
    assert check(events, replace(known, last_slot_ms=10 * MINUTE_MS), schedule=SCHEDULE) == []


def test_a_slot_that_ran_again_after_its_work_was_over_is_found() -> None:
    assert kinds(check([*run_of(1, 10), *run_of(2, 10)], state(2), schedule=SCHEDULE)) == [Kind.SLOT_TWICE]


def test_a_slot_that_ran_again_as_a_retry_holds() -> None:
    first = [started(1, slot=slot(10)), ended(1, "interrupted", slot=slot(10), cause="lost", retry_at=slot(10))]
    assert check([*first, *run_of(2, 10)], state(2), schedule=SCHEDULE) == []


def test_an_interrupted_run_without_a_word_of_what_follows_is_found() -> None:
    (found,) = check([started(1), ended(1, "interrupted", cause="lost")], state(1))
    assert (found.kind, found.epoch, offsets(found)) == (Kind.DROPPED, 1, [("runs", 1)])
    assert check([started(1), ended(1, "interrupted", cause="lost", dropped="on_interruption = skip")], state(1)) == []


def test_a_request_that_was_to_be_tried_again_and_is_gone_is_found() -> None:
    promised = [started(1, trigger="a"), ended(1, "failed", trigger="a", retry_at=slot(1))]
    (found,) = check(promised, state(1))
    assert (found.kind, offsets(found)) == (Kind.DROPPED, [("runs", 1)])
    assert check(promised, replace(state(1), status=Status.BACKOFF)) == []
    another = [*promised, started(2, trigger="b"), ended(2, trigger="b")]
    (found,) = check(another, state(2))
    assert (found.kind, found.epoch, offsets(found)) == (Kind.DROPPED, 1, [("runs", 1), ("runs", 2)])
    again = [*promised, started(2, trigger="a", attempt=2), ended(2, trigger="a")]
    assert check(again, state(2)) == []


def test_an_end_that_state_and_history_tell_differently_is_found() -> None:
    last = LastRun(1, Outcome.SUCCEEDED, None, 0)
    known = replace(state(1), last=last)
    assert check([started(1), ended(1)], known) == []
    assert kinds(check([started(1), ended(1, "failed", given_up="no")], known)) == [Kind.STATE]


# -- who wrote it -----------------------------------------------------------------------------------------------------

A, B, NOBODY = Stamp("lane-a", "n1"), Stamp("lane-b", "n2"), Stamp("lane-c", "n3")
FENCES = Fences([Fence("lane-a", "n1", 5, 0), Fence("lane-a", "n1", 8, 0, released=True), Fence("lane-b", "n2", 9, 0)])


def written(*stamps: Stamp, fences: Fences = FENCES) -> list[Finding]:
    checker = PartitionCheck(True, number=3, fences=fences)
    for offset, stamp in enumerate(stamps):
        checker.event("t", History("paused", None, 0, {}), offset, stamp)
    return checker.finish()[0]


def test_records_under_one_fence_after_the_other_hold() -> None:
    assert written(A, A, B, B) == []


def test_a_record_under_a_fence_that_was_followed_by_another_is_found() -> None:
    (found,) = written(A, B, A, A)
    assert found.kind is Kind.NO_FENCE
    assert found.places == (Place("runs", 3, 2), Place("runs", 3, 1), Place("owners", 3, 9))


def test_a_record_of_a_lane_that_never_fenced_is_found_where_no_fence_can_be_missing() -> None:
    assert kinds(written(A, NOBODY)) == [Kind.NO_FENCE]
    assert written(NOBODY, A) == [], "compaction may have removed its fence"
    assert kinds(written(NOBODY, fences=Fences([Fence("lane-a", "n1", 0, 0)], whole=True))) == [Kind.NO_FENCE]


def test_a_record_under_anothers_nonce_is_found() -> None:
    (found,) = written(Stamp("lane-x", "n1"))
    assert (found.kind, offsets(found)) == (Kind.NO_FENCE, [("runs", 0), ("owners", 5)])


def test_a_state_record_behind_a_fence_that_is_not_its_own_is_found() -> None:
    checker = PartitionCheck(True, number=3, fences=FENCES)
    checker.state(TaskState("t", 1), 0, A)
    checker.state_fence(B, 1)
    checker.state(TaskState("t", 2), 2, B)
    checker.state(TaskState("u", 1), 3, A)
    (found, *_) = checker.finish()[0]
    assert (found.kind, found.task) == (Kind.NO_FENCE, "u")
    assert found.places == (Place("state", 3, 3), Place("state", 3, 1))


@pytest.mark.parametrize(("heard_ms", "found"), [(0, [Kind.NO_OWNER]), (1_000_000, [])], ids=["silent", "alive"])
def test_a_run_that_is_on_needs_an_owner_that_is_alive(heard_ms: int, found: list[Kind]) -> None:
    checker = PartitionCheck(True, fences=Fences([Fence("lane", "n", 7, 0)]))
    checker.state(state(1, running=True), 4, None)
    checker.event("t", started(1), 2)
    findings, _ = checker.finish({"lane": heard_ms}, now_ms=1_030_000)
    assert kinds(findings) == found
    if found:
        assert offsets(findings[0]) == [("runs", 2), ("state", 4), ("owners", 7)]


# -- the bound --------------------------------------------------------------------------------------------------------


def long_history(records: int, tasks: int) -> Iterator[tuple[str, History]]:
    """So many records of runs that follow each other, of so many tasks in turn."""
    for number in range(records // 2):
        task, epoch = f"task/{number % tasks}", number // tasks + 1
        yield task, started(epoch, slot=slot(epoch))
        yield task, ended(epoch, slot=slot(epoch))


def most_kept(records: int, tasks: int, store: Store | None = None) -> int:
    """How many blocks of memory a check held at most, beyond one entry for each task in the store.

    Everything that Python keeps is at least one block: a record, a number, an entry of its own in a list.
    """
    checker = PartitionCheck(True, {f"task/{number}": SCHEDULE for number in range(100)}, store=store)
    before = most = sys.getallocatedblocks()
    for offset, (task, event) in enumerate(long_history(records, tasks)):
        checker.event(task, event, offset)
        if offset == 2 * tasks:  # each task was seen once, and caches are full
            before = most = sys.getallocatedblocks()
        elif offset % 1000 == 0:
            most = max(most, sys.getallocatedblocks())
    return most - before


def test_a_check_keeps_nothing_of_the_history_that_it_read() -> None:
    assert most_kept(300_000, 100) < 30_000, "one block for each record would be 300,000; caches of times take some"


def test_a_check_of_many_tasks_keeps_the_last_few_in_memory() -> None:
    before = sys.getallocatedblocks()
    with Spill(500) as store:
        assert most_kept(130_000, 50_000, store) < 3_000
        assert len(store) == 50_000
        assert sys.getallocatedblocks() - before < 60_000, "500 tasks have about 30 each; 50,000 would have 1,500,000"


def test_findings_beyond_the_limit_are_counted() -> None:
    checker = PartitionCheck(True)
    for epoch in range(1, MAX_FINDINGS + 101):
        checker.event("t", ended(epoch))
    findings, _ = checker.finish()
    assert len(findings) == MAX_FINDINGS
    assert checker.more == {Kind.NO_START: 100, Kind.STATE: 1}


def test_a_check_through_a_store_on_disk_finds_the_same() -> None:
    def found(store: Store | None) -> list[Finding]:
        checker = PartitionCheck(True, {"b": SCHEDULE}, store=store)
        checker.state(replace(state(3, running=True), task="a"), 0)
        for number in range(1, 40):
            for task in ("a", "b", "c"):
                checker.event(task, started(number, slot=slot(2 * number)), 3 * number)
                checker.event(task, ended(number if number % 7 else 1, slot=slot(2 * number)), 3 * number + 1)
        return sorted(checker.finish()[0], key=repr)

    with Spill(1) as store:
        assert found(store) == found(None) != []


DEFINITIONS = [
    Definition("t", PythonHandler("f"), SCHEDULE, overlap=overlap, on_interruption=on_interruption, retry=retry)
    for overlap in Overlap
    for on_interruption in OnInterruption
    for retry in (Retry(), Retry(attempts=3, delay_s=1.0))
]


OTHERS = (
    Every(7.0),
    None,
    Cron("*/5 * * * *"),
    Cron("H/20 * * * * *").for_task("t"),
    SCHEDULE,
    several([Every(7.0), Every(11.0)]),
    Adjusted(Every(5.0), 1_000_100_000, jitter_s=3.0).for_task("t"),
    Once(1_000_600_000),
    Every(60.0, 30_000),
)
DEFINITIONS_IN_TURN = [Definition("t", PythonHandler("f"), schedule, overlap=Overlap.BUFFER_ALL) for schedule in OTHERS]


@st.composite
def lives(draw: st.DrawFn) -> tuple[Definition, list[tuple[int, str]]]:
    often = ["trigger", "wake", "start", "start", "start", "succeed", "fail", "lose"]
    names = [*often, *often, "pause", "resume", "resume", "cancel", "define", "define", "delete"]
    steps = draw(st.lists(st.tuples(st.integers(1, 200_000), st.sampled_from(names)), min_size=5, max_size=60))
    return draw(st.sampled_from(DEFINITIONS)), [(1, "trigger"), (1, "start"), *steps]


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
        "cancel": Cancelled(),
        "delete": Deleted(),
    }
    return events[name]


@given(lives())
def test_nothing_is_found_in_what_the_machine_itself_writes(life: tuple[Definition, list[tuple[int, str]]]) -> None:
    first, steps = life
    changed = iter(DEFINITIONS_IN_TURN * 60)
    now_ms = 1_000_000_000
    definition = first
    events: list[History] = []
    task, commands = step(new_task("t"), Defined(definition), now_ms)
    events += [command for command in commands if isinstance(command, History)]
    for wait_ms, name in steps:
        now_ms += wait_ms
        if name == "define":
            definition = next(changed)
        happened = Defined(definition, restored=wait_ms % 2 == 0) if name == "define" else event_of(name, task)
        try:
            task, commands = step(task, happened, now_ms)
        except IllegalEvent:
            continue
        events += [command for command in commands if isinstance(command, History)]
    works = [*task.waiting, *task.delayed, *([task.state.work] if task.state.work is not None else [])]
    waiting = [work.slot_ms for work in works if work.slot_ms is not None]
    present = None if task.definition is None else task.definition.schedule
    assert check(events, task.state, schedule=present, waiting=waiting) == []
    for read_to in range(len(events)):  # retention may have removed any number of the oldest
        assert check(events[read_to:], task.state, complete=False, schedule=present, waiting=waiting) == []


@given(lives(), st.integers(0, 1000))
def test_a_start_or_an_end_that_is_missing_is_found(life: tuple[Definition, list[tuple[int, str]]], at: int) -> None:
    """Whichever is taken out of the history: the check notices."""
    first, steps = life
    now_ms = 1_000_000_000
    task, commands = step(new_task("t"), Defined(first), now_ms)
    events = [command for command in commands if isinstance(command, History)]
    for wait_ms, name in steps:
        now_ms += wait_ms
        try:
            task, commands = step(task, event_of("wake" if name == "define" else name, task), now_ms)
        except IllegalEvent:
            continue
        events += [command for command in commands if isinstance(command, History)]
    runs = [place for place, event in enumerate(events) if event.kind == "started" or "duration_s" in event.fields]
    place = runs[at % len(runs)]
    works = [*task.waiting, *task.delayed, *([task.state.work] if task.state.work is not None else [])]
    waiting = [work.slot_ms for work in works if work.slot_ms is not None]
    present = None if task.definition is None else task.definition.schedule
    assert check([*events[:place], *events[place + 1 :]], task.state, schedule=present, waiting=waiting) != []


def test_a_state_that_is_gone_is_no_finding_where_the_history_says_that_it_was_forgotten() -> None:
    check = PartitionCheck(True)
    check.state_gone("t")
    for event in (started(1), ended(1), History("forgotten", 1, 0, {})):
        check.event("t", event)
    assert check.finish()[0] == []
    without = PartitionCheck(True)
    for event in (started(1), ended(1)):
        without.event("t", event)
    assert [finding.kind for finding in without.finish()[0]] == [Kind.STATE]


def test_epochs_left_out_after_a_task_was_forgotten_are_the_floors_and_a_repeated_one_is_found() -> None:
    check = PartitionCheck(True)
    for event in (started(1), ended(1), History("forgotten", 1, 0, {}), started(8), ended(8)):
        check.event("t", event)
    check.state(TaskState("t", epoch=8), 5)
    assert check.finish()[0] == []
    check = PartitionCheck(True)
    for event in (started(2), ended(2), History("forgotten", 2, 0, {}), started(1), ended(1)):
        check.event("t", event)
    assert Kind.BACKWARDS in [finding.kind for finding in check.finish()[0]]


def test_a_part_of_a_broadcast_that_ran_on_another_worker_than_it_was_asked_of_is_found() -> None:
    def check_of(*lanes: str) -> list[Finding]:
        checker = PartitionCheck(True, {}, {}, ("n", False))
        for epoch, lane in enumerate(lanes, 1):
            stamp = Stamp(lane, "n")
            checker.event("t/on/0.1", started(epoch, cycle=f"c{epoch}", worker="a/b"), 2 * epoch, stamp)
            checker.event("t/on/0.1", ended(epoch, cycle=f"c{epoch}"), 2 * epoch + 1, stamp)
        checker.state(TaskState("t/on/0.1", len(lanes)))
        return checker.finish()[0]

    assert check_of("a/b/0/x", "a/b/1/y") == []
    (found,) = check_of("a/b/0/x", "a/0/x")
    assert (found.kind, found.epoch, offsets(found)) == (Kind.ELSEWHERE, 2, [("runs", 4)])


def test_what_a_broadcast_leaves_behind_is_no_loss() -> None:
    """A run that was to be tried again, on a partition that another worker has by then, is ended there."""
    history = [
        started(1, cycle="c", worker="a"), ended(1, "interrupted", cycle="c", retry_at="2026-01-01T00:00:00.000Z"),
        History("interrupted", 1, 0, {"attempt": 0, "cycle": "c", "cause": "its partition is another worker's now"}),
        History("skipped", None, 0, {"cycle": "d", "cause": "its partition is another worker's now"}),
    ]  # fmt: skip
    assert check(history, state(1)) == []
    assert [found.kind for found in check(history[:2], state(1))] == [Kind.DROPPED]
