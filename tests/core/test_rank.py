"""Priority, and how waiting makes up for it (case P05)."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.rank import AGE_MS, in_order, line_up, rank
from fencepost.core.task import Overlap, Work
from tests.core.play import SECOND, T0, Play, definition


def work(seq: int, priority: int, at_ms: int = T0, **fields: Any) -> Work:
    return Work(seq, priority=priority, arrived_ms=at_ms, **fields)


def test_a_lower_number_goes_first_and_waiting_makes_up_for_it() -> None:
    assert rank(0, T0) < rank(9, T0)
    assert rank(9, T0) < rank(0, T0 + 9 * AGE_MS + 1)


def test_p05_a_task_with_a_stream_of_urgent_requests_gets_to_the_one_that_is_not() -> None:
    play = Play(definition(overlap=Overlap.BUFFER_ALL))
    play.trigger("urgent 0", priority=0)
    play.start()
    play.trigger("low", priority=9)
    started: list[str | None] = []
    for second in range(1, 300):
        play.sleep(SECOND)
        play.trigger(f"urgent {second}", priority=0)
        play.trigger(f"and another {second}", priority=0)
        play.end()
        play.start()
        started.append(play.launches[-1].work.trigger_id)
        if started[-1] == "low":
            break
    assert started[-1] == "low"
    urgent = [id for id in started[:-1] if id is not None]
    arrival = [int(id.rpartition(" ")[2]) for id in urgent]
    assert arrival == sorted(arrival)


def test_p05_a_hundred_requests_of_one_level_start_in_the_order_they_came() -> None:
    """Also with time stamps that run backwards: those of a producer may be anything."""
    play = Play(definition(overlap=Overlap.BUFFER_ALL))
    for number in range(100):
        play.trigger(str(number), arrived_ms=T0 - number * SECOND)
    started = []
    for _ in range(100):
        play.start()
        started.append(play.launches[-1].work.trigger_id)
        play.end()
    assert started == [str(number) for number in range(100)]


works = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 200_000), st.one_of(st.just(0), st.integers(1, 200_000))), max_size=30
)


@given(works, st.integers())
def test_who_comes_later_changes_nothing_in_the_order_of_those_who_wait(
    given_works: list[tuple[int, int, int]], seed: int
) -> None:
    """Put in one by one, as they come, or lined up after a takeover: in each level the order of arrival holds."""
    made = [
        work(seq, priority, T0 + at, due_ms=due and T0 + due) for seq, (priority, at, due) in enumerate(given_works)
    ]
    line: tuple[Work, ...] = ()
    for each in made:
        line = in_order(line, each)
    shuffled = made[:]
    random.Random(seed).shuffle(shuffled)
    assert line == line_up(shuffled)
    for priority in range(10):
        seqs = [each.seq for each in line if each.priority == priority]
        assert seqs == sorted(seqs)
