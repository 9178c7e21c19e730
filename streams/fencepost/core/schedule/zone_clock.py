"""The wall clock of a time zone, as stretches of real time with one UTC offset each.

All of the daylight saving rules follow from two facts about a stretch: which wall time it begins with, and up to which
wall time the clock had already come before. If it begins later, wall times are missing (a gap); if it begins earlier,
wall times come again (a repeated hour). Both hold for any change of offset, half hours, whole days and changes that
have nothing to do with summer time included.

Real time is in seconds since the epoch. Wall time is in the same form: the seconds from 1970-01-01T00:00 to what the
clock on the wall shows, as if there were no zones, so that wall = real + offset.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from fencepost.core.schedule.errors import ScheduleError
from fencepost.core.times import MAX_S

_DAY_S = 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Stretches are found in blocks of 2**25 s (388 days), for the whole calendar would cost seconds.
_BLOCK_BITS = 25
_BLOCKS_KEPT = 64
# How far before a block a change of offset still matters: the longest repetition is 7 hours, a day is more than any.
_LOOK_BACK_S = 4 * _DAY_S
# A zone is asked for its offset this often. Two changes that undo each other in between would be overlooked; the
# closest two in the data since 1970 are a week apart.
_PROBE_S = _DAY_S
# Offsets are not asked for later than this, so that no wall time falls beyond the last year datetime knows.
_LAST_PROBE_S = MAX_S - 2 * _DAY_S

# What the machine or its administrator decides, and what counts leap seconds, would differ between workers.
_NOT_PORTABLE = ("localtime", "posixrules", "Factory", "posix/", "right/")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Real time in [start_s, end_s) with one offset. `seen_s`: the wall time that the clock had come to before it."""

    start_s: int
    end_s: int
    offset_s: int
    seen_s: int


class ZoneClock:
    """The stretches of one zone. Holds what it has found; gives the same answers for ever."""

    __slots__ = ("_blocks", "_zone", "name")

    def __init__(self, name: str, zone: tzinfo) -> None:
        self.name = name
        self._zone = zone
        self._blocks: dict[int, tuple[list[int], list[Stretch]]] = {}

    def stretch_at(self, real_s: int) -> Stretch:
        """The stretch that holds a second from 0 to MAX_S. Its ends may be ends of a block, where nothing changes."""
        number = real_s >> _BLOCK_BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._load(number)
        starts, stretches = block
        return stretches[bisect_right(starts, real_s) - 1]

    def _load(self, number: int) -> tuple[list[int], list[Stretch]]:
        if len(self._blocks) >= _BLOCKS_KEPT:
            self._blocks.clear()
        stretches = self._stretches(number << _BLOCK_BITS, min((number + 1) << _BLOCK_BITS, MAX_S + 1))
        block = [stretch.start_s for stretch in stretches], stretches
        self._blocks[number] = block
        return block

    def _stretches(self, begin_s: int, end_s: int) -> list[Stretch]:
        start_s = begin_s - _LOOK_BACK_S
        offset_s = self._offset_s(start_s)
        seen_s = start_s + offset_s
        found = []
        for next_s, next_offset_s in [*self._changes(start_s, end_s), (end_s, 0)]:
            if next_s > begin_s:
                # A stretch that began before the block is cut, and what it has passed through meanwhile is seen.
                cut_s = max(start_s, begin_s)
                passed_s = seen_s if cut_s == start_s else max(seen_s, cut_s + offset_s)
                found.append(Stretch(cut_s, next_s, offset_s, passed_s))
            seen_s = max(seen_s, next_s + offset_s)
            start_s, offset_s = next_s, next_offset_s
        return found

    def _changes(self, begin_s: int, end_s: int) -> list[tuple[int, int]]:
        """The seconds in (begin_s, end_s) from which another offset holds, each with that offset."""
        found = []
        at_s, offset_s = begin_s, self._offset_s(begin_s)
        while at_s < end_s - 1:
            probe_s = min(at_s + _PROBE_S, end_s - 1)
            if self._offset_s(probe_s) != offset_s:
                probe_s = self._first_change(at_s, probe_s)
                offset_s = self._offset_s(probe_s)
                found.append((probe_s, offset_s))
            at_s = probe_s
        return found

    def _first_change(self, before_s: int, after_s: int) -> int:
        offset_s = self._offset_s(before_s)
        while after_s - before_s > 1:
            middle_s = (before_s + after_s) // 2
            if self._offset_s(middle_s) == offset_s:
                before_s = middle_s
            else:
                after_s = middle_s
        return after_s

    def _offset_s(self, real_s: int) -> int:
        moment = _EPOCH + timedelta(seconds=min(real_s, _LAST_PROBE_S))
        offset = moment.astimezone(self._zone).utcoffset()
        return 0 if offset is None else offset.days * _DAY_S + offset.seconds


@lru_cache(maxsize=1024)
def zone_clock(name: str) -> ZoneClock:
    """The clock of a zone of the time zone database, such as `Europe/Berlin`. Raises ScheduleError (`time_zone`)."""
    allowed = "allowed: names of the time zone database such as UTC, Europe/Berlin, America/New_York"
    if name.startswith(_NOT_PORTABLE):
        raise ScheduleError("time_zone", f"{name[:80]!r} is not the same on every machine; {allowed}")
    try:
        return ZoneClock(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError) as error:
        # An unknown key, one that leaves the database's folder or is not text for a file, a folder such as "Europe".
        raise ScheduleError("time_zone", f"{name[:80]!r} is not known; {allowed}") from error
