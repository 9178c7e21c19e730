"""What a lane keeps of one partition, without a lane around it."""

from __future__ import annotations

from fencepost.core.ownership import Holding
from fencepost.core.task import Definition, PythonHandler, Status, Task, TaskState, Work
from fencepost.worker.partition import Partition


def in_backoff(retry_at_ms: int) -> Task:
    state = TaskState("t", 1, Status.BACKOFF, work=Work(1), retry_at_ms=retry_at_ms)
    return Task(state, Definition("t", PythonHandler("work")))


def test_a_task_that_is_ready_when_the_clock_is_put_back_starts_when_its_time_comes_again() -> None:
    partition = Partition(Holding(0, "lane"))
    partition.put("t", in_backoff(10_000), 10_000)
    assert partition.next_ready(8_500) is None
    assert partition.next_due_ms() == 10_000
    assert partition.due(10_000, 1, running=False) == ["t"]
    partition.put("t", partition.tasks["t"], 10_000)
    assert partition.next_ready(10_000) == "t"


def ready(task: str, priority: int) -> Task:
    return Task(TaskState(task), Definition(task, PythonHandler("work")), (Work(1, priority=priority),))


def test_p05_a_task_of_low_priority_starts_though_urgent_ones_keep_coming() -> None:
    partition = Partition(Holding(0, "lane"))
    partition.put("low", ready("low", 9), 0)
    for second in range(200):
        for number in range(2):  # twice what can start
            partition.put(f"urgent {second} {number}", ready("urgent", 0), second * 1000)
        started = partition.next_ready(second * 1000)
        if started == "low":
            break
    assert started == "low"


def test_p05_tasks_of_one_level_start_in_the_order_they_became_ready() -> None:
    partition = Partition(Holding(0, "lane"))
    names = [f"t{number}" for number in range(100)]
    for number, name in enumerate(names):
        partition.put(name, ready(name, 5), 1000 - number)  # also where the clock is put back meanwhile
    assert [partition.next_ready(1000) for _ in names] == names


def test_an_urgent_request_takes_its_task_further_ahead() -> None:
    partition = Partition(Holding(0, "lane"))
    for name in ("a", "b"):
        partition.put(name, ready(name, 5), 0)
    partition.put("b", ready("b", 0), 0)
    assert partition.ready == 2
    assert [partition.next_ready(0) for _ in range(3)] == ["b", "a", None]


def test_a_retry_that_is_due_is_what_starts_next_whatever_waits_behind_it() -> None:
    partition = Partition(Holding(0, "lane"))
    behind = Task(in_backoff(0).state, Definition("t", PythonHandler("work")), (Work(2, priority=0),))
    partition.put("t", behind, 0)
    partition.put("u", ready("u", 4), 0)
    assert partition.next_ready(0) == "u"
