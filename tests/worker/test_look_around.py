"""Who is there: not before owners was read far enough, and never without somebody who holds something all the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fencepost.core.attendance import Attendance
from fencepost.core.ownership import FenceRecord, Holding, Picture
from fencepost.kafka.errors import RetryLater
from fencepost.kafka.topics import Topics
from fencepost.worker.look_around import LookAround
from fencepost.worker.partition import Partition

OWNERS = Topics("n").owners


class Owners:
    """The topic of owners, as one lane reads it: `read` takes what was written into account."""

    def __init__(self, partitions: int) -> None:
        self.written: list[list[FenceRecord]] = [[] for _ in range(partitions)]
        self.positions = [0] * partitions
        self.down = False
        self.warnings: list[str] = []
        log = SimpleNamespace(warning=lambda text, **_: self.warnings.append(text))
        self.context: Any = SimpleNamespace(
            partition_count=partitions, topics=Topics("n"), pictures={}, heard={}, log=log
        )
        reader: Any = SimpleNamespace(position=lambda _topic, number: self.positions[number])
        self.partition = Partition(Holding(0, "lane"))
        self.around = LookAround(self.context, reader, self)  # type: ignore[arg-type]

    def ends(self, places: list[tuple[str, int]], _timeout_s: float, *, committed_only: bool) -> dict[Any, int]:
        assert committed_only
        if self.down:
            raise RetryLater("nobody answers")
        return {(topic, number): len(self.written[number]) for topic, number in places}

    def fence(self, number: int, worker: str, *, released: bool = False) -> None:
        self.written[number].append(FenceRecord(number, f"{worker}/0/x", worker, (), worker=worker, released=released))

    def read(self, *numbers: int) -> None:
        for number in numbers:
            for record in self.written[number][self.positions[number] :]:
                before = self.context.pictures.get(number, Picture())
                self.context.pictures[number] = before.fold(record)
                if not record.released:
                    self.context.heard[record.worker] = self.context.heard.get(record.worker, 0) + 1
            self.positions[number] = len(self.written[number])

    def look(self) -> Attendance | None:
        """One round of the lane that asks."""
        self.partition.looked, self.partition.looking = self.partition.looking, {}
        return self.around.attendance(self.partition, "t")


def test_it_is_answered_at_once_where_everything_was_read_already() -> None:
    owners = Owners(3)
    owners.fence(0, "a")
    owners.fence(1, "b")
    owners.fence(2, "a")
    owners.read(0, 1, 2)
    assert owners.look() == Attendance(3, (("a", 0), ("b", 1)))
    assert not owners.partition.looking


def test_it_is_not_answered_by_what_was_known_before_it_was_asked() -> None:
    owners = Owners(2)
    owners.fence(0, "a")
    owners.fence(1, "a")
    owners.read(0, 1)
    owners.fence(1, "b")
    assert owners.look() is None
    owners.fence(0, "c")  # after it was asked: need not be read, and may be
    owners.read(1)
    assert owners.look() == Attendance(2, (("a", 0), ("b", 1)))


def test_one_that_lost_its_only_partition_while_it_got_another_is_not_missing() -> None:
    """The loss is read, and the gain, which came before it, is not: it lies behind the end that was asked for."""
    owners = Owners(2)
    owners.fence(0, "a")
    owners.fence(1, "b")
    owners.read(0)
    assert owners.look() is None
    owners.fence(1, "a")
    owners.fence(0, "c")
    owners.positions[1] = 1  # only b's fence
    owners.context.pictures[1] = Picture().fold(owners.written[1][0])
    owners.context.heard["b"] = 1
    owners.read(0)
    assert owners.look() is None, "a was seen, and is not to be found"
    assert owners.look() is None
    owners.read(1)
    assert owners.look() is None, "nor is b, of whom the same may be true"
    assert owners.look() == Attendance(2, (("a", 1), ("c", 0)))


def test_one_that_came_and_went_meanwhile_is_not_there() -> None:
    owners = Owners(2)
    owners.fence(0, "a")
    owners.fence(1, "b")
    assert owners.look() is None
    owners.fence(1, "b", released=True)
    owners.read(0, 1)
    assert owners.look() is None, "it was there a moment ago"
    assert owners.look() == Attendance(2, (("a", 0),))


def test_where_kafka_does_not_answer_it_is_asked_again_and_nothing_is_lost() -> None:
    owners = Owners(1)
    owners.fence(0, "a")
    owners.read(0)
    owners.down = True
    assert owners.look() is None
    assert owners.warnings == ["Kafka does not answer"]
    assert "t" in owners.partition.looking
    owners.down = False
    assert owners.look() == Attendance(1, (("a", 0),))
