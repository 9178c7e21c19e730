"""The guard's bookkeeping, without processes or clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.worker.guard import control
from fencepost.worker.guard.control import Kind, ToGuard, ToWorker, Why
from fencepost.worker.guard.deadlines import END_EARLY_S, Deadlines, ask_early_s


def test_nothing_can_be_bound_to_a_lease_that_was_never_renewed() -> None:
    assert not Deadlines().bind(1, (1, 10.0), now=0.0)


@pytest.mark.parametrize(("now", "bound"), [(0.0, True), (9.6, True), (9.7, False), (11.0, False)])
def test_a_runner_is_bound_only_while_there_is_time(now: float, bound: bool) -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    assert deadlines.bind(1, (1, 10.0), now) is bound


def test_the_earliest_of_a_runners_leases_counts() -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    deadlines.renew(2, 5.0)
    assert deadlines.bind(7, (1, 10.0), 0.0)
    assert deadlines.bind(7, (2, 10.0), 0.0)
    assert deadlines.first() == 10.0
    assert deadlines.expired(9.69) == {}
    assert deadlines.expired(9.7) == {7: [(1, 10.0)]}


def test_a_renewal_moves_only_the_lease_it_names_and_only_forward() -> None:
    deadlines = Deadlines()
    for lease in (1, 2):
        deadlines.renew(lease, 0.0)
        assert deadlines.bind(lease, (lease, 10.0), 0.0)
    deadlines.renew(1, 5.0)
    deadlines.renew(2, -5.0)
    assert deadlines.expired(9.8) == {2: [(2, 10.0)]}


def test_a_bound_runner_keeps_the_guards_own_timer_at_its_deadline_until_it_is_gone() -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    deadlines.renew(2, 100.0)
    assert deadlines.bind(1, (1, 10.0), 0.0)
    assert deadlines.bind(2, (2, 10.0), 0.0)
    assert deadlines.expired(9.8)
    assert deadlines.first() == 10.0  # told to end is not gone
    deadlines.drop(1)
    assert deadlines.first() == 110.0
    deadlines.drop(2)
    assert deadlines.first() is None


def test_a_guard_that_has_done_what_it_can_has_no_reason_to_look_again() -> None:
    """It goes before everybody else: looking again and again it would keep what it ended from dying."""
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    assert deadlines.bind(1, (1, 10.0), 0.0)
    assert deadlines.expired(9.8) == {1: [(1, 10.0)]}
    deadlines.told((1, 10.0))
    assert deadlines.next_look() is None
    assert deadlines.first() == 10.0
    deadlines.renew(1, 5.0)
    assert deadlines.next_look() == 15.0 - ask_early_s(10.0)


def test_a_rebind_moves_what_is_bound_and_keeps_the_later_time() -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 3.0)
    assert deadlines.bind(1, (1, 10.0), 3.0)
    deadlines.rebind(1, 2)
    assert deadlines.first() == 13.0
    deadlines.renew(1, 50.0)
    assert deadlines.first() == 13.0
    deadlines.renew(2, 20.0)
    assert deadlines.first() == 30.0


def test_a_lease_in_use_is_not_forgotten() -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    assert deadlines.bind(1, (1, 10.0), 0.0)
    deadlines.forget(1)
    assert deadlines.first() == 10.0
    deadlines.unbind(1, (1, 10.0))
    deadlines.forget(1)
    assert not deadlines.bind(1, (1, 10.0), 0.0)


def test_a_runner_is_asked_once_for_each_deadline() -> None:
    deadlines = Deadlines()
    deadlines.renew(1, 0.0)
    assert deadlines.bind(1, (1, 10.0), 0.0)
    early = 10.0 - ask_early_s(10.0)
    assert deadlines.next_look() == early
    assert deadlines.to_ask(early - 0.01) == set()
    assert deadlines.to_ask(early) == {1}
    assert deadlines.to_ask(early + 0.01) == set()
    assert deadlines.next_look() == 10.0 - END_EARLY_S
    deadlines.renew(1, 1.0)
    assert deadlines.to_ask(early + 1.0) == {1}


leases = st.integers(1, 4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("renew"), leases, st.floats(0, 100)),
        st.tuples(st.just("bind"), st.integers(1, 5), leases),
        st.tuples(st.just("unbind"), st.integers(1, 5), leases),
        st.tuples(st.just("rebind"), leases, leases),
        st.tuples(st.just("drop"), st.integers(1, 5), leases),
        st.tuples(st.just("forget"), leases, leases),
    )
)


@given(steps, st.floats(0, 120))
def test_whatever_happens_the_timer_never_stands_later_than_any_bound_deadline(
    taken: list[tuple[str, int, float]], now: float
) -> None:
    deadlines = Deadlines()
    began: dict[int, float] = {}
    bound: set[tuple[int, int]] = set()
    for what, first, second in taken:
        if what == "renew":
            deadlines.renew(first, second)
            began[first] = max(second, began.get(first, second))
        elif what == "bind":
            if deadlines.bind(first, (int(second), 10.0), now):
                assert began[int(second)] + 10.0 - END_EARLY_S > now
                bound.add((first, int(second)))
        elif what == "unbind":
            deadlines.unbind(first, (int(second), 10.0))
            bound.discard((first, int(second)))
        elif what == "drop":
            deadlines.drop(first)
            bound = {pair for pair in bound if pair[0] != first}
        elif what == "forget":
            deadlines.forget(first)
            if not any(lease == first for _, lease in bound):
                began.pop(first, None)
        elif first != second:
            deadlines.rebind(first, int(second))
            if first in began:
                old = began.pop(first)
                began[int(second)] = max(old, began.get(int(second), old))
            bound = {(runner, int(second) if lease == first else lease) for runner, lease in bound}
        assert deadlines.first() == min((began[lease] + 10.0 for _, lease in bound), default=None)
        assert set(deadlines.expired(now)) == {r for r, lease in bound if now >= began[lease] + 10.0 - END_EARLY_S}


u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
times = st.floats(0, 1e9)


@given(u32, u32, u64, times, st.text(max_size=255))
def test_messages_are_read_as_they_were_written(a: int, b: int, token: int, at: float, task: str) -> None:
    assert control.read_lease(control.lease(a, at)) == (a, at)
    assert control.read_pair(control.rebind(a, b)) == (a, b)
    assert control.read_one(control.one(ToGuard.KILL, a)) == a
    assert control.read_fork(control.spawn_shared(a, Kind.ASYNC, 3)) == (a, Kind.ASYNC, 3)
    own = control.spawn_own(a, Kind.SYNC, 1, b, at, token, task)
    assert control.read_spawn_own(own) == (a, Kind.SYNC, 1, b, at, token, task.encode())
    assert control.read_bind(control.bind(ToWorker.BOUND, a, b, at)) == (a, b, at)
    assert control.read_limit(control.limit(a, token, at)) == (a, token, at)
    assert control.read_clear(control.clear(a, token)) == (a, token)
    assert control.read_watch(control.watch(a, at)) == (a, at)
    expired = [(a, at), (b, 1.0)]
    assert control.read_gone(control.gone(a, Why.FENCED, token, -1, expired)) == (a, Why.FENCED, token, -1, expired)
