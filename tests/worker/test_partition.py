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
