from __future__ import annotations

from fencepost.core.commands import DropWork
from fencepost.core.task import Retry, Status
from tests.core.play import HOUR, Play, definition, waiting_ids


def test_cancel_drops_what_waits_and_what_is_delayed() -> None:
    play = Play(definition())
    play.trigger("one")
    play.trigger("later", run_at_ms=play.now_ms + HOUR)
    play.cancel(reason="not needed")
    assert [(told["trigger"], told["cause"]) for told in play.told("skipped")] == [
        ("one", "not needed"),
        ("later", "not needed"),
    ]
    assert len(play.of(DropWork)) == 2
    assert not play.startable


def test_cancel_may_leave_what_waits_alone() -> None:
    play = Play(definition())
    play.trigger("one")
    play.start()
    play.trigger("two")
    play.cancel(waiting=False)
    assert len(play.stops) == 1
    assert waiting_ids(play.task) == ["two"]


def test_cancel_ends_work_in_backoff() -> None:
    play = Play(definition(retry=Retry(attempts=5)))
    play.trigger("one")
    play.start()
    play.fail()
    play.cancel()
    assert play.status is Status.IDLE
    assert play.told("cancelled")[0]["cause"] == "cancelled"


def test_cancel_of_nothing_does_nothing() -> None:
    play = Play(definition())
    before = play.task
    assert play.cancel() == ()
    assert play.task is before


def test_pause_holds_back_every_start_and_resume_frees_them() -> None:
    play = Play(definition(retry=Retry(attempts=2, delay_s=0.0)))
    play.trigger("one")
    play.start()
    play.pause(reason="maintenance")
    play.fail()
    play.trigger("two")
    assert not play.startable
    assert play.task.state.pause_reason == "maintenance"
    play.resume()
    assert play.startable


def test_pausing_and_resuming_twice_is_told_once() -> None:
    play = Play(definition())
    play.pause()
    play.pause()
    play.resume()
    play.resume()
    assert play.kinds() == ["paused", "resumed"]


def test_a_control_record_is_taken_once_by_its_offset() -> None:
    play = Play(definition())
    play.pause(offset=5)
    play.resume(offset=6)
    before = play.task
    for repeated in (play.pause(offset=5), play.resume(offset=6), play.cancel(offset=3)):
        assert repeated == ()
    assert play.task is before
    assert play.task.state.control_offset == 6


def test_a_reason_is_kept_short_and_plain() -> None:
    play = Play(definition())
    play.pause(reason='"quoted" \\ \x00' + "ä" * 500)
    reason = play.task.state.pause_reason
    assert reason is not None
    assert reason.startswith("'quoted' /  ä")
    assert len(reason.encode()) <= 120
