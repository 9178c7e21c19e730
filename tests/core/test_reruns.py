"""A past run is asked for once more."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.commands import Command
from fencepost.core.events import Rerun
from fencepost.core.schedule import Every
from fencepost.core.task import Overlap, Status
from tests.core.play import HOUR, SECOND, T0, Play, definition, waiting_ids


def rerun(play: Play, **fields: Any) -> tuple[Command, ...]:
    play.offset += 1
    return play.step(Rerun(**{"offset": play.offset, "epoch": 1} | fields))


def ran_once(**fields: Any) -> Play:
    play = Play(definition(**fields))
    play.trigger("one", payload={"n": 1})
    play.start()
    play.end()
    return play


def test_a_rerun_is_a_new_request_with_attempts_of_its_own() -> None:
    play = ran_once()
    rerun(play, payload={"n": 1}, headers={"a": "b"}, id="again")
    play.start()
    launch = play.launches[-1]
    assert (launch.run.epoch, launch.run.attempt, launch.work.payload) == (2, 1, {"n": 1})
    assert launch.work.headers == {"a": "b"}
    assert play.told("started")[-1]["asked_by"] == "rerun of epoch 1"
    assert launch.work.seq != play.launches[0].work.seq  # and so another idempotency key


def test_a_rerun_without_payload_gets_the_definitions() -> None:
    play = ran_once(payload={"default": 1})
    rerun(play, slot_ms=T0)
    play.start()
    assert play.launches[-1].work.payload == {"default": 1}
    assert play.launches[-1].work.slot_ms == T0


def test_a_rerun_of_a_slot_moves_no_slot() -> None:
    play = Play(definition(schedule=Every(3600)))
    before = (play.task.state.next_slot_ms, play.task.state.last_slot_ms)
    rerun(play, epoch=None, slot_ms=T0 - HOUR)
    play.start()
    assert play.told("started")[-1]["asked_by"] == "rerun"
    assert play.told("started")[-1]["waited_s"] == 0
    assert (play.task.state.next_slot_ms, play.task.state.last_slot_ms) == before


@pytest.mark.parametrize("overlap", Overlap)
def test_b09_a_rerun_obeys_the_overlap_policy(overlap: Overlap) -> None:
    play = Play(definition(overlap=overlap))
    play.trigger("one")
    play.start()
    rerun(play, id="again")
    if overlap is Overlap.SKIP:
        assert play.told("skipped")[0]["cause"] == "overlap"
    else:
        assert waiting_ids(play.task) == ["again"]
    assert bool(play.stops) is (overlap in (Overlap.CANCEL, Overlap.TERMINATE))


def test_a_rerun_is_taken_once_by_its_offset_and_by_its_id() -> None:
    play = ran_once()
    rerun(play, offset=5, id="again")
    assert play.step(Rerun(5, 1, id="again")) == ()
    rerun(play, offset=6, id="again")
    assert [told["cause"] for told in play.told("skipped")] == ["duplicate"]


def test_a_rerun_of_what_was_deleted_is_skipped_with_its_cause() -> None:
    play = ran_once()
    play.delete()
    rerun(play)
    assert play.told("skipped")[-1]["cause"] == "deleted"
    assert play.status is Status.IDLE
    assert not play.startable


def test_a_rerun_waits_out_a_pause() -> None:
    play = ran_once()
    play.pause()
    rerun(play)
    assert not play.startable
    play.resume()
    play.sleep(SECOND)
    assert play.startable
