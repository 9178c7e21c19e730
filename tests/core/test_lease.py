"""Leases: what counts, from when, and how long the next owner waits."""

from __future__ import annotations

import pytest

from fencepost.core.lease import Lease, OffsetStamp, Renewal, Watch, wait_s


def test_a_wait_is_longer_than_the_lease_on_the_worst_pair_of_clocks() -> None:
    ttl_s, rate_error = 30.0, 0.01
    longest_lease_s = ttl_s / (1 - rate_error)  # true seconds, on the slowest holder's clock
    shortest_wait_s = wait_s(ttl_s, rate_error) / (1 + rate_error)  # true seconds, on the fastest waiter's clock
    assert shortest_wait_s >= longest_lease_s - 1e-9


def test_the_wait_counts_from_the_stable_answer_when_the_last_renewal_was_not_seen() -> None:
    watch = Watch()
    watch.note(Renewal("a", 6, ((0, "n"),)), now_boot_s=10.0)
    assert watch.waits_from(OffsetStamp("a", "n", "a", 7), answered_boot_s=50.0) == 50.0


@pytest.mark.parametrize("seen", [7, 8])
def test_the_wait_counts_from_when_the_last_renewal_or_a_later_one_was_seen(seen: int) -> None:
    watch = Watch()
    watch.note(Renewal("a", seen, ((0, "n"),)), now_boot_s=40.0)
    assert watch.waits_from(OffsetStamp("a", "n", "a", 7), answered_boot_s=50.0) == 40.0


def test_an_older_renewal_read_again_does_not_move_what_was_seen() -> None:
    watch = Watch()
    watch.note(Renewal("a", 7, ()), now_boot_s=40.0)
    watch.note(Renewal("a", 7, ()), now_boot_s=45.0)
    watch.note(Renewal("a", 6, ()), now_boot_s=46.0)
    assert watch.waits_from(OffsetStamp("a", "n", "a", 7), answered_boot_s=50.0) == 40.0


@pytest.mark.parametrize("stamp", [None, OffsetStamp("a", "n")])
def test_without_a_named_renewal_the_wait_counts_from_the_stable_answer(stamp: OffsetStamp | None) -> None:
    watch = Watch()
    watch.note(Renewal("a", 7, ()), now_boot_s=40.0)
    assert watch.waits_from(stamp, answered_boot_s=50.0) == 50.0


def test_a_renewal_counts_from_when_it_began_to_be_sent_and_only_for_what_it_names() -> None:
    lease = Lease(ttl_s=10.0, every_s=2.5)
    assert lease.due({3: "x"}, now_boot_s=100.0)
    lease.send({3: "x"}, now_boot_s=100.0)
    assert not lease.due({3: "x"}, now_boot_s=109.0), "one renewal is on its way at a time"
    proven = lease.prove()
    assert (proven.began_boot_s, proven.held) == (100.0, ((3, "x"),))
    assert not lease.due({3: "x"}, now_boot_s=102.0)
    assert lease.due({3: "x"}, now_boot_s=102.5)
    assert lease.due({3: "x", 4: "y"}, now_boot_s=100.5), "partition 4 has no lease yet"
    assert lease.due({3: "z"}, now_boot_s=100.5), "another nonce is another lease"


def test_a_renewal_that_did_not_become_readable_counts_for_nothing_and_its_number_is_not_used_again() -> None:
    lease = Lease(ttl_s=10.0, every_s=2.5)
    first = lease.send({3: "x"}, now_boot_s=100.0)
    lease.drop()
    assert lease.due({3: "x"}, now_boot_s=100.0)
    second = lease.send({3: "x"}, now_boot_s=101.0)
    assert second.number == first.number + 1
    with pytest.raises(ValueError, match="no renewal"):
        Lease(1.0, 1.0).prove()


def test_no_live_runs_need_no_renewal() -> None:
    assert not Lease(10.0, 2.5).due({}, now_boot_s=1e6)
