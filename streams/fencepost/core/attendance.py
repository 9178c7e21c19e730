"""Who is there: each worker that holds partitions, with one of them. It is what a broadcast goes by.

Read from the fences in the topic of owners, and from nothing else: no callback, no clock, no word of a worker's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.core.ownership import Picture


@dataclass(frozen=True, slots=True)
class Attendance:
    """`homes`: (worker, the lowest partition that it holds), by worker. `partitions`: so many the namespace has."""

    partitions: int
    homes: tuple[tuple[str, int], ...]

    def home_of(self, worker: str) -> int | None:
        """The partition on which this worker is met; None: it holds none."""
        return next((partition for name, partition in self.homes if name == worker), None)


def attendance_of(pictures: Mapping[int, Picture], partitions: int) -> Attendance:
    """What the fences say. A partition that was released, and taken by nobody yet, is nobody's."""
    homes: dict[str, int] = {}
    for partition in sorted(pictures):
        last = pictures[partition].last
        if last is not None and not last.released and last.worker:
            homes.setdefault(last.worker, partition)
    return Attendance(partitions, tuple(sorted(homes.items())))
