"""Priority, and how waiting makes up for it (case P05)."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.rank import AGE_MS, behind_its_level, in_order, line_up, rank
from fencepost.core.task import Overlap, Task, TaskState, Work
from fencepost.core.time_limits import first_limit_ms
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


# Priority, time stamp of the producer, when it is due (0: at once), and how many have started by the time it comes.
arrivals = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 200_000),
        st.one_of(st.just(0), st.integers(1, 200_000)),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(arrivals, st.integers())
def test_the_order_is_that_of_a_queue_put_together_from_its_records_whatever_stamps_say(
    given_arrivals: list[tuple[int, int, int, int]], seed: int
) -> None:
    """However many have come, started, or waited too long meanwhile; and a level keeps the order of arrival."""
    draw = random.Random(seed)
    line: tuple[Work, ...] = ()
    for seq, (priority, at, due, started) in enumerate(given_arrivals):
        one = work(seq, priority, T0 + at, due_ms=due and T0 + due)
        if not due:
            one = behind_its_level(line, one)
        before = line
        line = in_order(line, one)
        assert tuple(each for each in line if each is not one) == before  # nobody who waits changes places
        records = list(line)
        draw.shuffle(records)
        assert line_up(records) == line
        for level in range(10):
            at_once = [each.seq for each in line if each.priority == level and not each.due_ms]
            assert at_once == sorted(at_once)
        line = line[started:]
        if line and draw.random() < 0.2:  # one in the midst of them goes
            gone = draw.randrange(len(line))
            line = (*line[:gone], *line[gone + 1 :])


def test_a_request_is_put_among_ten_thousand_without_looking_at_them_all(monkeypatch: Any) -> None:
    line = line_up(work(seq, seq % 10, T0 + seq) for seq in range(10_000))
    asked: list[int] = []

    def counted(each: Work) -> int:
        asked.append(each.seq)
        return max(each.due_ms, each.arrived_ms)

    monkeypatch.setattr("fencepost.core.rank.since_ms", counted)
    one = behind_its_level(line, work(10_000, 9, T0 + 10_000))
    assert in_order(line, one)[-1] is one
    assert len(asked) < 100


def test_of_many_that_wait_a_few_are_looked_at_for_the_first_limit() -> None:
    line = line_up(work(seq, 5, T0 + seq * 7) for seq in range(10_000))
    task = Task(TaskState("t", next_seq=10_001), definition(start_timeout_s=10), line)
    assert first_limit_ms(task) == T0 + 10 * SECOND
    assert (
        first_limit_ms(Task(task.state, task.definition, tuple(reversed(line)))) == line[-100].arrived_ms + 10 * SECOND
    )
