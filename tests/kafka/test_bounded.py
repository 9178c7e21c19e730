"""Calls that may never come back."""

from __future__ import annotations

import threading

import pytest

from fencepost.kafka.bounded import BoundedCalls, Overdue


def test_a_call_is_made_and_what_it_raises_is_raised() -> None:
    calls, made = BoundedCalls(), []
    calls.call(lambda: made.append(1), 20)
    assert made == [1]

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        calls.call(fail, 20)
    calls.close()


def test_one_that_does_not_come_back_is_left_behind_and_the_next_is_made() -> None:
    others = set(threading.enumerate())  # of lanes that other tests left to the collector
    calls, made, back = BoundedCalls(), [], threading.Event()
    with pytest.raises(Overdue):
        calls.call(lambda: back.wait(60), 0.05)
    calls.call(lambda: made.append(2), 20)
    assert made == [2]
    left = {thread for thread in threading.enumerate() if thread.name == "fencepost-call"} - others
    assert left
    back.set()
    calls.close()
    for thread in left:
        thread.join(20)
        assert not thread.is_alive()
