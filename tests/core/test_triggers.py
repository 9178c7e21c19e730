from __future__ import annotations

import pytest

from fencepost.core.admission import MAX_WAITING
from fencepost.core.commands import DropWork, History, Launch, PutWork, Stop
from fencepost.core.machine import wake_at_ms
from fencepost.core.schedule import Every
from fencepost.core.task import Outcome, Overlap, Retry, Status, default_overlap
from tests.core.play import HOUR, MINUTE, SECOND, Play, definition, waiting_ids


def test_a_trigger_becomes_a_run_and_the_run_ends() -> None:
    play = Play(definition())
    (put,) = play.trigger("one", payload={"n": 1}, headers={"a": "b"})
    assert isinstance(put, PutWork)
    assert play.startable
    history, drop, launch = play.start("lane-7", "nonce-9")
    assert isinstance(history, History)
    assert history.kind == "started"
    assert history.fields == {"trigger": "one", "offset": 0, "attempt": 1, "lease_ttl_s": 15.0, "waited_s": 0.0}
    assert drop == DropWork(put.work.seq)
    assert isinstance(launch, Launch)
    assert (launch.run.epoch, launch.run.attempt, launch.run.lane, launch.run.nonce) == (1, 1, "lane-7", "nonce-9")
    assert (launch.work.payload, launch.work.headers) == ({"n": 1}, {"a": "b"})
    assert play.task.state.run == launch.run
    play.sleep(2500)
    (ended,) = play.end(result={"sum": 3})
    assert isinstance(ended, History)
    assert (ended.kind, ended.epoch) == ("succeeded", 1)
    assert ended.fields == {"trigger": "one", "offset": 0, "attempt": 1, "duration_s": 2.5, "result": {"sum": 3}}
    assert play.status is Status.IDLE
    assert play.task.state.last is not None
    assert play.task.state.last.outcome is Outcome.SUCCEEDED
    assert play.task.state.run is None
    assert play.task.state.work is None


def test_a_trigger_without_payload_gets_the_definitions() -> None:
    play = Play(definition(payload={"default": True}))
    play.trigger()
    play.start()
    assert play.launches[0].work.payload == {"default": True}
    assert play.task.state.work is not None
    assert play.task.state.work.payload is None


def test_an_offset_that_was_taken_changes_nothing() -> None:
    play = Play(definition())
    play.trigger("one")
    play.trigger("two")
    before = play.task
    play.offset = -1
    assert play.trigger("one") == ()
    assert play.trigger("three, read again under another id") == ()
    assert play.task is before
    assert play.trigger("three") != ()


def test_an_id_is_taken_once_within_a_day() -> None:
    play = Play(definition())
    play.trigger("one")
    play.start()
    play.end()
    play.sleep(23 * HOUR)
    (skipped,) = play.trigger("one")
    assert isinstance(skipped, History)
    assert (skipped.kind, skipped.fields) == ("skipped", {"trigger": "one", "offset": 1, "cause": "duplicate"})
    assert not play.startable
    play.sleep(HOUR + SECOND)
    play.trigger("one")
    assert play.startable


def test_the_last_hundred_ids_are_remembered() -> None:
    play = Play(definition(buffer_limit=1000))
    for number in range(150):
        play.trigger(f"id {number}")
        assert len(play.task.state.recent_ids) == min(number + 1, 100)
    play.trigger("id 50")
    assert play.told("skipped")[-1]["cause"] == "duplicate"
    play.trigger("id 49")
    assert len(play.told("skipped")) == 1


def test_triggers_without_id_are_never_duplicates() -> None:
    play = Play(definition())
    play.trigger(payload=1)
    play.trigger(payload=1)
    assert len(play.task.waiting) == 2
    assert play.task.state.recent_ids == ()


def test_the_lowest_priority_number_goes_first_and_equals_in_order_of_arrival() -> None:
    play = Play(definition())
    for id, priority in [("a", None), ("b", 9), ("c", 0), ("d", 5), ("e", 0), ("f", 9)]:
        play.trigger(id, priority=priority)
    assert waiting_ids(play.task) == ["c", "e", "a", "d", "b", "f"]
    for id in ["c", "e", "a", "d", "b", "f"]:
        play.start()
        assert play.launches[-1].work.trigger_id == id
        play.end()


# -- delayed --------------------------------------------------------------------------------------------------------


def test_b01_a_future_trigger_waits_as_state_and_runs_once() -> None:
    play = Play(definition())
    told, put = play.trigger("later", run_at_ms=play.now_ms + HOUR)
    assert isinstance(told, History)
    assert told.kind == "triggered"
    assert isinstance(put, PutWork)
    assert put.work.due_ms == play.now_ms + HOUR
    assert not play.startable
    assert wake_at_ms(play.task) == play.now_ms + HOUR
    play.sleep(HOUR - 1)
    assert play.wake() == ()
    play.sleep(1)
    assert play.wake() == ()
    assert play.startable
    assert wake_at_ms(play.task) is None
    assert DropWork(put.work.seq) in play.start()
    play.end()
    assert len(play.launches) == 1
    assert not play.startable


def test_a_run_at_in_the_past_runs_at_once() -> None:
    play = Play(definition())
    play.trigger("late", run_at_ms=play.now_ms - HOUR)
    assert play.startable


def test_a_delay_counts_from_the_arrival_but_never_from_the_future() -> None:
    play = Play(definition())
    play.trigger("read late", delay_ms=10 * SECOND, arrived_ms=play.now_ms - 4 * SECOND)
    play.trigger("odd stamp", delay_ms=10 * SECOND, arrived_ms=play.now_ms + HOUR)
    assert [work.due_ms - play.now_ms for work in play.task.delayed] == [6 * SECOND, 10 * SECOND]


def test_delayed_triggers_come_due_in_the_order_of_their_times() -> None:
    play = Play(definition())
    for id, minutes in [("c", 3), ("a", 1), ("b", 2)]:
        play.trigger(id, run_at_ms=play.now_ms + minutes * MINUTE)
    order = []
    for _ in range(3):
        play.sleep_until_woken()
        play.start()
        order.append(play.launches[-1].work.trigger_id)
        play.end()
    assert order == ["a", "b", "c"]


def test_a_delayed_trigger_counts_for_the_overlap_only_once_it_is_due() -> None:
    play = Play(definition(overlap=Overlap.SKIP))
    play.trigger("later", run_at_ms=play.now_ms + MINUTE)
    play.trigger("now")
    assert waiting_ids(play.task) == ["now"]
    play.start()
    play.sleep(MINUTE)
    skipped, drop = play.wake()
    assert isinstance(skipped, History)
    assert skipped.fields["cause"] == "overlap"
    assert isinstance(drop, DropWork)


# -- overlap --------------------------------------------------------------------------------------------------------


def test_the_default_policy_depends_on_the_schedule() -> None:
    assert default_overlap(None) is Overlap.BUFFER_ALL
    assert default_overlap(Every(60)) is Overlap.BUFFER_ONE


@pytest.mark.parametrize(
    ("overlap", "waiting", "skipped"),
    [
        (Overlap.SKIP, [], [("two", "overlap"), ("three", "overlap"), ("four", "overlap")]),
        (Overlap.BUFFER_ONE, ["two"], [("three", "buffer full"), ("four", "buffer full")]),
        (Overlap.BUFFER_ALL, ["two", "three"], [("four", "buffer full")]),
    ],
)
@pytest.mark.parametrize("started", [True, False], ids=["running", "waiting for a runner"])
def test_b09_each_policy_keeps_what_it_says_while_a_request_is_on(
    overlap: Overlap, waiting: list[str], skipped: list[tuple[str, str]], started: bool
) -> None:
    play = Play(definition(overlap=overlap, buffer_limit=2))
    play.trigger("one")
    if started:
        play.start()
    for id in ("two", "three", "four"):
        play.trigger(id)
    assert waiting_ids(play.task) == ([] if started else ["one"]) + waiting
    assert [(told["trigger"], told["cause"]) for told in play.told("skipped")] == skipped


def test_work_in_backoff_counts_as_on() -> None:
    play = Play(definition(overlap=Overlap.SKIP, retry=Retry(attempts=2)))
    play.trigger("one")
    play.start()
    play.fail()
    play.trigger("two")
    assert play.told("skipped")[0]["cause"] == "overlap"


def test_cancel_stops_the_run_and_the_new_one_follows() -> None:
    play = Play(definition(overlap=Overlap.CANCEL, grace_s=7.0))
    play.trigger("one")
    play.start()
    play.trigger("two")
    assert play.stops == [Stop(1, "cancelled", 7.0)]
    assert not play.startable
    play.trigger("three")
    assert play.stops == [Stop(1, "cancelled", 7.0)]  # it was asked already
    assert play.told("skipped") == [{"trigger": "two", "offset": 1, "cause": "overlap"}]
    play.end(Outcome.SUCCEEDED)
    assert play.told("cancelled")[0]["cause"] == "overlap"
    play.start()
    assert (play.launches[-1].run.epoch, play.launches[-1].work.trigger_id) == (2, "three")


def test_terminate_leaves_no_grace() -> None:
    play = Play(definition(overlap=Overlap.TERMINATE, grace_s=7.0))
    play.trigger("one")
    play.start()
    play.trigger("two")
    assert play.stops == [Stop(1, "cancelled", 0.0)]


def test_cancel_ends_work_that_waits_for_its_next_attempt() -> None:
    play = Play(definition(overlap=Overlap.CANCEL, retry=Retry(attempts=3)))
    play.trigger("one")
    play.start()
    play.fail()
    play.trigger("two")
    assert play.status is Status.IDLE
    assert play.told("cancelled") == [{"attempt": 1, "trigger": "one", "offset": 0, "cause": "overlap"}]
    play.start()
    assert (play.epoch, play.launches[-1].work.trigger_id) == (2, "two")


def test_no_task_hoards_more_than_the_limit() -> None:
    play = Play(definition())
    play.task = Play(definition()).task
    for _ in range(MAX_WAITING):
        play.trigger(run_at_ms=play.now_ms + HOUR)
    play.trigger("one too many", run_at_ms=play.now_ms + HOUR)
    assert play.told("skipped") == [{"trigger": "one too many", "offset": MAX_WAITING, "cause": "buffer full"}]
    assert len(play.task.delayed) == MAX_WAITING


# -- undefined ------------------------------------------------------------------------------------------------------


def test_a_trigger_for_a_deleted_task_is_skipped() -> None:
    play = Play(definition())
    play.delete()
    play.trigger("one")
    assert play.told("skipped") == [{"trigger": "one", "offset": 0, "cause": "deleted"}]


def test_a_trigger_for_a_task_that_never_was_is_skipped() -> None:
    play = Play(None)
    play.trigger("one")
    assert play.told("skipped") == [{"trigger": "one", "offset": 0, "cause": "not defined"}]


# -- large payloads -------------------------------------------------------------------------------------------------


def test_a_large_payload_keeps_its_record_until_the_work_ends() -> None:
    play = Play(definition(retry=Retry(attempts=2, delay_s=0.0)))
    (put,) = play.trigger("one", payload="x" * 5000, size=5002)
    assert isinstance(put, PutWork)
    assert put.work.own_record
    play.start()
    play.fail()
    play.start()
    assert play.of(DropWork) == []
    play.fail()
    assert play.of(DropWork) == [DropWork(put.work.seq)]


def test_a_large_payload_of_cancelled_work_is_dropped_too() -> None:
    play = Play(definition(retry=Retry(attempts=2)))
    (put,) = play.trigger("one", payload="x" * 5000, size=5002)
    assert isinstance(put, PutWork)
    play.start()
    play.fail()
    play.cancel()
    assert play.of(DropWork) == [DropWork(put.work.seq)]
