"""The ownership protocol, step by step, with each safeguard of the model where it can be seen."""

from __future__ import annotations

import pytest

from fencepost.core import ownership as own
from fencepost.core.lease import OffsetStamp
from fencepost.core.ownership import FenceRecord, Holder, Holding, Phase, Picture

ME, OTHER, THIRD = "w1/0/aa", "w2/0/bb", "w3/0/cc"


def fence(lane: str, nonce: str, **more: object) -> FenceRecord:
    return FenceRecord(0, lane, nonce, (f"ring-{lane}",), **more)  # type: ignore[arg-type]


def holder(lane: str) -> Holder:
    return Holder(lane, (f"ring-{lane}",))


def held() -> Holding:
    picture = Picture()
    holding, _ = own.acquire(0, ME, picture)
    for event in (own.Answered(-1, None, 1.0), own.FenceSent("n1"), own.OwnNonceRead(picture.fold(fence(ME, "n1")))):
        holding, _ = own.step(holding, event)
    assert holding.phase is Phase.HELD
    return holding


def test_a_partition_nobody_had_is_asked_for_fenced_read_and_held() -> None:
    holding, commands = own.acquire(0, ME, Picture())
    assert (holding.phase, commands) == (Phase.ASKING, (own.Ask(),))
    holding, commands = own.step(holding, own.Answered(7, OffsetStamp(OTHER, "n0"), 5.0))
    assert (holding.phase, commands) == (Phase.FENCING, (own.SendFence(),))
    holding, commands = own.step(holding, own.FenceSent("n1"))
    assert (holding.phase, commands) == (Phase.READING, (own.ReadBack("n1"),))
    holding, commands = own.step(holding, own.OwnNonceRead(Picture().fold(fence(ME, "n1"))))
    assert (holding.phase, commands) == (Phase.HELD, (own.Hold(),))


def test_the_producers_of_an_earlier_holder_are_ended_before_the_answer_counts() -> None:
    holding, commands = own.acquire(0, ME, Picture().fold(fence(OTHER, "n0")))
    assert (holding.phase, commands) == (Phase.ENDING, (own.EndProducers((holder(OTHER),)),))
    holding, commands = own.step(holding, own.HoldersEnded(frozenset({OTHER})))
    assert (holding.phase, commands) == (Phase.ASKING, (own.Ask(),))


def test_a_released_partition_needs_nobody_ended() -> None:
    picture = Picture().fold(fence(OTHER, "n0")).fold(fence(OTHER, "n0", released=True))
    holding, commands = own.acquire(0, ME, picture)
    assert (holding.phase, commands) == (Phase.ASKING, (own.Ask(),))


def test_a_release_counts_for_its_own_nonce_only() -> None:
    picture = Picture().fold(fence(OTHER, "n0")).fold(fence(THIRD, "n1")).fold(fence(OTHER, "n0", released=True))
    assert {item.lane for item in picture.open} == {OTHER, THIRD}


def test_a_holder_that_only_reading_shows_is_ended_and_a_new_nonce_committed() -> None:
    holding, _ = own.acquire(0, ME, Picture())
    for event in (own.Answered(-1, None, 1.0), own.FenceSent("n1")):
        holding, _ = own.step(holding, event)
    shown = Picture().fold(fence(OTHER, "n0")).fold(fence(ME, "n1"))
    holding, commands = own.step(holding, own.OwnNonceRead(shown))
    assert (holding.phase, commands) == (Phase.ENDING, (own.LetGo(), own.EndProducers((holder(OTHER),))))
    holding, _ = own.step(holding, own.HoldersEnded(frozenset({OTHER})))
    holding, _ = own.step(holding, own.Answered(-1, None, 2.0))
    holding, _ = own.step(holding, own.FenceSent("n2"))
    holding, commands = own.step(holding, own.OwnNonceRead(shown.fold(fence(ME, "n2", ended=(OTHER,)))))
    assert (holding.phase, commands) == (Phase.HELD, (own.Hold(),))


def test_a_holder_its_successor_did_not_end_is_carried_on_by_the_successors_record() -> None:
    picture = Picture().fold(fence(THIRD, "n1", open=(holder(OTHER),)))
    assert {item.lane for item in picture.to_end(ME, frozenset())} == {OTHER, THIRD}


def test_a_failed_fence_transaction_asks_again_for_the_answer_may_be_stale() -> None:
    holding, _ = own.acquire(0, ME, Picture())
    holding, _ = own.step(holding, own.Answered(-1, None, 1.0))
    holding, commands = own.step(holding, own.FenceFailed())
    assert (holding.phase, commands) == (Phase.ASKING, (own.Ask(),))


def test_a_foreign_nonce_behind_the_own_one_sends_a_lane_back_to_step_1_with_its_runs_left_to_the_guard() -> None:
    holding = held()
    picture = holding.picture.fold(fence(OTHER, "n2"))
    holding, commands = own.step(holding, own.ForeignNonce(picture))
    assert holding.phase is Phase.ENDING
    assert commands == (own.LetGo(), own.EndProducers((holder(OTHER),)))
    assert holding.nonce == ""


def test_a_fenced_producer_sends_a_lane_back_to_step_1() -> None:
    holding, commands = own.step(held(), own.ProducerFenced())
    assert (holding.phase, commands) == (Phase.ASKING, (own.LetGo(), own.Ask()))


def test_released_is_written_only_when_drained_and_after_the_waits() -> None:
    holding, _ = own.step(held(), own.WaitsOver())
    holding, commands = own.step(holding, own.Revoked())
    assert (holding.phase, commands) == (Phase.DRAINING, (own.Drain(),))
    holding, commands = own.step(holding, own.Drained())
    assert (holding.phase, commands) == (Phase.RELEASING, (own.SendRelease(),))
    holding, commands = own.step(holding, own.ReleaseRead())
    assert (holding.phase, commands) == (Phase.GONE, (own.GiveUp(),))


def test_a_lane_that_still_waits_for_an_earlier_lease_gives_up_without_released() -> None:
    holding, _ = own.step(held(), own.Revoked())
    holding, commands = own.step(holding, own.Drained())
    assert (holding.phase, commands) == (Phase.GONE, (own.GiveUp(),))


@pytest.mark.parametrize("event", [own.Lost(), own.ForeignNonce(Picture()), own.ProducerFenced()])
def test_while_giving_away_losing_the_partition_kills_its_runs(event: own.Event) -> None:
    holding, _ = own.step(held(), own.Revoked())
    holding, commands = own.step(holding, event)
    assert (holding.phase, commands) == (Phase.GONE, (own.KillRuns(), own.GiveUp()))


def test_a_lost_partition_kills_its_runs_at_once_in_every_phase() -> None:
    for phase in Phase:
        if phase is not Phase.GONE:
            holding, commands = own.step(Holding(0, ME, phase), own.Lost())
            assert (holding.phase, commands) == (Phase.GONE, (own.KillRuns(), own.GiveUp()))


def test_an_event_that_the_table_does_not_know_raises_and_changes_nothing() -> None:
    holding = held()
    with pytest.raises(own.IllegalOwnershipEvent, match="FenceSent in phase held"):
        own.step(holding, own.FenceSent("n9"))
    assert holding.nonce == "n1"
