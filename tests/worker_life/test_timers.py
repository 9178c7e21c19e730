"""Timers: one time a task, replaced at will."""

from __future__ import annotations

from fencepost.worker.timers import Timers


def test_due_tasks_come_earliest_first_and_only_once() -> None:
    timers = Timers()
    for task, at_ms in (("b", 20), ("a", 10), ("c", 30)):
        timers.set(task, at_ms)
    assert list(timers.due(20, 10)) == ["a", "b"]
    assert list(timers.due(20, 10)) == []
    assert timers.next_ms() == 30


def test_setting_a_time_again_replaces_it_and_none_takes_it_away() -> None:
    timers = Timers()
    timers.set("a", 10)
    timers.set("a", 50)
    timers.set("b", 20)
    timers.set("b", None)
    assert list(timers.due(40, 10)) == []
    assert timers.next_ms() == 50
    timers.set("a", 10)
    assert list(timers.due(40, 10)) == ["a"]
    assert timers.next_ms() is None


def test_no_more_than_the_limit_comes_at_a_time() -> None:
    timers = Timers()
    for number in range(5):
        timers.set(f"t{number}", number)
    assert list(timers.due(100, 2)) == ["t0", "t1"]
    assert list(timers.due(100, 0)) == []
    assert list(timers.due(100, 10)) == ["t2", "t3", "t4"]
