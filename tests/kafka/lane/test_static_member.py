"""A worker with an ID of its own is a static member: its place in the group outlives its process for a session."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fencepost.kafka.errors import Die
from fencepost.kafka.member import Member
from tests.kafka.lane.harness import World, wait_until


def static_member(world: World) -> tuple[Member, set[int]]:
    owned: set[int] = set()
    member = Member(
        replace(world.settings, session_timeout_s=world.info.session_timeout_s),
        topic=world.topics.triggers,
        protocol=world.info.group_protocol,
        ordinal=0,
        instance_id="the-same",
        on_assigned=owned.update,
        on_revoked=owned.difference_update,
        on_lost=owned.difference_update,
    )
    member.join()
    return member, owned


def all_owned(member: Member, owned: set[int]) -> None:
    wait_until("all partitions owned", lambda: member.poll(0.01) or len(owned) == 4)


def test_a_new_process_waits_until_the_place_of_an_earlier_one_is_free(world: World) -> None:
    """Under the newer protocol it is refused until then; under the classic one it gets the place at once."""
    earlier, before = static_member(world)
    all_owned(earlier, before)
    newer, after = static_member(world)
    if world.info.group_protocol == "consumer":
        wait_until("refused", lambda: newer.poll(0.01) or newer._refused_since_s is not None)
        earlier.close()
    all_owned(newer, after)
    assert after == {0, 1, 2, 3}
    newer.close()


def test_it_does_not_wait_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.info.group_protocol != "consumer":
        pytest.skip("the classic protocol gives the place to the newcomer at once")
    first, owned = static_member(world)
    all_owned(first, owned)
    second, _ = static_member(world)
    second._patience_s = 1.0
    with pytest.raises(Die, match="instance ID is still used"):  # noqa: PT012 - the first goes on, as it is polled
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s:
            first.poll(0.01)
            second.poll(0.01)
    second.close()
    first.close()
