"""Overlap `batch`: one run gets what waits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client import RunStatus, after
from fencepost.core.batches import NUMBERS_BYTES, members_of, numbers_of, numbers_text
from fencepost.core.commands import DropWork, GiveUp, History
from fencepost.core.machine import restored_task
from fencepost.core.schedule import Every
from fencepost.core.task import Cause, Overlap, Retry, Status, Task, Work
from fencepost.core.verify import Kind, PartitionCheck
from fencepost.wire.history import HistoryRecord
from fencepost.wire.state import decode_state, encode_state
from fencepost.wire.work import decode_work, encode_work
from tests.core.play import SECOND, T0, Play, definition, waiting_ids


def hot(waiting: int = 5, **fields: Any) -> Play:
    """A run is on, and so many requests wait."""
    play = Play(definition(**{"overlap": Overlap.BATCH} | fields))
    play.trigger("first")
    play.start()
    for number in range(waiting):
        play.trigger(f"w{number}", payload={"n": number})
    return play


def ids(play: Play) -> list[str | None]:
    work = play.launches[-1].work
    return [each.trigger_id for each in (work, *work.members)]


def test_one_run_gets_what_waits_up_to_the_limit() -> None:
    play = hot(5, batch_limit=3)
    play.end()
    play.start()
    assert ids(play) == ["w0", "w1", "w2"]
    assert waiting_ids(play.task) == ["w3", "w4"]
    play.end()
    play.start()
    assert ids(play) == ["w3", "w4"]


def test_every_request_of_a_batch_is_told_of_at_its_start_and_its_end() -> None:
    play = hot(3)
    play.end()
    play.start()
    play.end(result=7)
    for told in (play.told("started")[-1], play.told("succeeded")[-1]):
        assert told["trigger"] == "w0"
        assert [other["trigger"] for other in told["batch"]] == ["w1", "w2"]
    assert sorted(drop.seq for drop in play.of(DropWork)) == [1, 2, 3, 4]  # nothing is left in the log


def test_one_that_waits_alone_is_no_batch() -> None:
    play = hot(1)
    play.end()
    play.start()
    assert play.launches[-1].work.members == ()
    assert "batch" not in play.told("started")[-1]


def test_the_retry_of_a_batch_is_the_same_batch_and_what_came_later_waits() -> None:
    play = hot(2, retry=Retry(attempts=2, delay_s=1, jitter=0))
    play.end()
    play.start()
    play.fail()
    play.trigger("later")
    play.sleep(SECOND)
    play.start()
    assert ids(play) == ["w0", "w1"]
    play.interrupt(Cause.LOST)
    play.start()
    assert ids(play) == ["w0", "w1"]
    play.fail()
    assert [given_up.work.trigger_id for given_up in play.of(GiveUp)] == ["w0", "w1"]
    play.start()
    assert ids(play) == ["later"]


def test_a_batch_is_the_same_after_a_takeover() -> None:
    play = hot(3)
    play.end()
    records = [encode_work("report", work, "l", "n") for work in play.task.waiting]
    play.start()
    state = decode_state(encode_state(play.task.state, "l", "n"))
    again = restored_task(state, [decode_work(record) for record in reversed(records)])
    assert again.state == play.task.state
    assert again.waiting == ()
    assert again.state.work is not None
    assert [member.payload for member in again.state.work.members] == [{"n": 1}, {"n": 2}]


@given(st.lists(st.integers(1, 10**9), max_size=99, unique=True))
def test_the_numbers_of_a_batch_fit_into_the_state_and_come_back_in_order(seqs: list[int]) -> None:
    members = members_of(tuple([Work(seq) for seq in seqs]), 99)
    taken = [member.seq for member in members]
    assert taken == seqs[: len(taken)]
    assert bool(taken) is bool(seqs)
    text = numbers_text(taken)
    assert len(text) <= NUMBERS_BYTES
    assert not taken or numbers_of(text) == taken


def test_a_hundred_requests_that_came_one_after_the_other_fit() -> None:
    works = tuple([Work(10**9 + number) for number in range(200)])
    assert len(members_of(works, 99)) == 99


def test_a_full_buffer_skips_with_batches_too() -> None:
    play = hot(5, buffer_limit=3)
    assert [told["trigger"] for told in play.told("skipped")] == ["w3", "w4"]


def test_cancelling_a_batch_in_backoff_ends_all_its_requests() -> None:
    play = hot(2, retry=Retry(attempts=2))
    play.end()
    play.start()
    play.fail()
    play.cancel()
    assert play.status is Status.IDLE
    assert [other["trigger"] for other in play.told("cancelled")[0]["batch"]] == ["w1"]
    assert sorted(drop.seq for drop in play.of(DropWork)) == [1, 2, 3]


def test_a_handle_of_any_request_of_a_batch_learns_how_it_ended() -> None:
    play = hot(3)
    play.end()
    play.start()
    play.end(result=7)
    status = RunStatus("sent")
    for event in play.log:
        if isinstance(event, History):
            record = HistoryRecord("report", event.kind, event.epoch, event.at_ms, "l", "n", event.fields)
            status = after(status, record, "w2")
    assert (status.kind, status.result) == ("succeeded", 7)


def judged(play: Play, task: Task | None = None) -> list[tuple[Kind, str]]:
    check = PartitionCheck(True)
    check.state((task or play.task).state)
    for at, event in enumerate(event for event in play.log if isinstance(event, History)):
        check.event("report", event, at)
    return [(finding.kind, finding.text) for finding in check.finish()[0]]


def slots_in_a_batch() -> Play:
    play = Play()
    play.define(schedule=Every(60, T0), overlap=Overlap.BATCH, retry=Retry(attempts=2, delay_s=1, jitter=0))
    for _ in range(4):
        play.sleep_until_woken()
        if play.startable:
            play.start()
    play.end()
    play.start()
    assert len(play.launches[-1].work.members) == 2
    return play


def test_verify_accepts_batches_of_slots_and_their_retries() -> None:
    play = slots_in_a_batch()
    play.fail()
    play.sleep(SECOND)
    play.start()
    play.end()
    assert judged(play) == []


def test_verify_finds_a_retry_that_is_not_the_same_batch() -> None:
    play = slots_in_a_batch()
    play.fail()
    play.sleep(SECOND)
    play.start()
    play.end()
    started = [event for event in play.log if isinstance(event, History) and event.kind == "started"]
    started[-1].fields["batch"].pop()
    assert Kind.DROPPED in {kind for kind, _ in judged(play)}


def test_verify_finds_a_slot_of_a_batch_that_vanished() -> None:
    play = slots_in_a_batch()
    play.end()
    for event in play.log:
        if isinstance(event, History) and "batch" in event.fields:
            event.fields["batch"].pop()
    assert Kind.SLOT_LOST in {kind for kind, _ in judged(play)}
