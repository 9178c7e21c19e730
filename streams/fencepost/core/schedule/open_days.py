"""The slots of a schedule on the open days of a calendar: those on closed days are left out, or move.

Days are those of the wall clock in one zone, counted from 1970-01-01; wall times are in milliseconds, in the form of
`zone_clock`. A slot that moves keeps its time of day; where the clock leaves that out on the day it moves to, it comes
right after the gap, and where it comes twice, at the first. Two that meet at one time are one slot.

Work is bounded by the longest series of closed days, not by the number of slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fencepost.core.schedule.layers import Slots, count_one_by_one
from fencepost.core.schedule.work_calendar import Calendar, OnClosed
from fencepost.core.schedule.zone_clock import ZoneClock
from fencepost.core.times import MAX_MS, MAX_S

_DAY_S = 86_400
_DAY_MS = _DAY_S * 1000
# After so many closed series in a row, each with a slot in it, no open day is looked for any more.
_TRIES: Final = 500


@dataclass(frozen=True, slots=True)
class WallDays:
    """Between real time and the days of a zone's wall clock."""

    clock: ZoneClock

    def wall_ms(self, at_ms: int) -> int:
        return at_ms + self.clock.stretch_at(at_ms // 1000).offset_s * 1000

    def day(self, at_ms: int) -> int:
        return self.wall_ms(at_ms) // _DAY_MS

    def seen_ms(self, at_ms: int) -> int:
        """The wall time that the clock has come to."""
        return max(self.clock.stretch_at(at_ms // 1000).seen_s * 1000, self.wall_ms(at_ms))

    def real_ms(self, wall_ms: int) -> int:
        """When the clock first shows this wall time or, where it is left out, a later one."""
        wall_s, from_s = wall_ms // 1000, max(0, wall_ms // 1000 - 2 * _DAY_S)
        while from_s <= MAX_S:
            stretch = self.clock.stretch_at(from_s)
            if wall_s < stretch.end_s + stretch.offset_s:
                return max(stretch.start_s * 1000, wall_ms - stretch.offset_s * 1000)
            from_s = stretch.end_s
        return MAX_MS + 1

    def begin_ms(self, day: int) -> int:
        return self.real_ms(day * _DAY_MS)

    def parts(self, day: int) -> Iterator[tuple[int, int, int]]:
        """The parts of a day with one offset each, as (first wall time, wall time after it, offset)."""
        from_s, until_s = self.begin_ms(day) // 1000, self.begin_ms(day + 1) // 1000 + _DAY_S
        while from_s < min(until_s, MAX_S):
            stretch = self.clock.stretch_at(from_s)
            offset_ms = stretch.offset_s * 1000
            low_ms = max(day * _DAY_MS, stretch.start_s * 1000 + offset_ms)
            high_ms = min(day * _DAY_MS + _DAY_MS, stretch.end_s * 1000 + offset_ms)
            if low_ms < high_ms:
                yield low_ms, high_ms, offset_ms
            from_s = stretch.end_s


@dataclass(frozen=True, slots=True)
class OpenDays:
    """`inner` with the slots on closed days left out."""

    inner: Slots
    calendar: Calendar
    days: WallDays

    def next_after(self, after_ms: int) -> int | None:
        for _ in range(_TRIES):
            slot_ms = self.inner.next_after(after_ms)
            if slot_ms is None or self.calendar.is_open(day := self.days.day(slot_ms)):
                return slot_ms
            after_ms = max(slot_ms, self.days.begin_ms(self.calendar.open_from(day)) - 1)
        return None

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        for _ in range(_TRIES):
            slot_ms = self.inner.latest_at_or_before(at_ms, not_before_ms)
            if slot_ms is None or self.calendar.is_open(day := self.days.day(slot_ms)):
                return slot_ms
            at_ms = min(slot_ms, self.days.begin_ms(self.calendar.open_until(day) + 1)) - 1
        return None

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        """By series of open days: the work grows with the days in between."""
        found = 0
        while found < limit and (slot_ms := self.next_after(after_ms)) is not None and slot_ms <= until_ms:
            closed = day = self.days.day(slot_ms)
            while self.calendar.is_open(closed) and closed - day < 400:
                closed += 1
            last_ms = min(until_ms, self.days.begin_ms(closed) - 1)
            last_ms = max(last_ms, slot_ms)
            found += self.inner.count(slot_ms - 1, last_ms, limit - found)
            after_ms = last_ms
        return found


@dataclass(frozen=True, slots=True)
class MovedDays:
    """`inner` with the slots on closed days moved to the open day after, or before, them."""

    inner: Slots
    calendar: Calendar
    days: WallDays

    def next_after(self, after_ms: int) -> int | None:
        after_ms = max(after_ms, -1)
        day = self.days.day(max(after_ms, 0))
        if self.calendar.is_open(day) and (slot_ms := self._first_on(day, after_ms)) is not None:
            return slot_ms
        for _ in range(_TRIES):
            slot_ms = self.inner.next_after(self.days.begin_ms(self._first_after(day)) - 1)
            if slot_ms is None:
                return None
            day = self._target(self.days.day(slot_ms))
            if (slot_ms := self._first_on(day, after_ms)) is not None:
                return slot_ms
        return None

    def latest_at_or_before(self, at_ms: int, not_before_ms: int) -> int | None:
        at_ms = min(at_ms, MAX_MS)
        if at_ms < 0:
            return None
        day = self.days.day(at_ms)
        found = self._last_on(day, at_ms) if self.calendar.is_open(day) else None
        for _ in range(_TRIES):
            if found is not None:
                return found if found > not_before_ms else None
            slot_ms = self.inner.latest_at_or_before(self.days.begin_ms(self._last_before(day) + 1) - 1, -1)
            if slot_ms is None:
                return None
            day = self._target(self.days.day(slot_ms))
            found = self._last_on(day, at_ms)
        return None

    def count(self, after_ms: int, until_ms: int, limit: int) -> int:
        return count_one_by_one(self, after_ms, until_ms, limit)

    # --- days --------------------------------------------------------------------------------------------------------

    def _forwards(self) -> bool:
        return self.calendar.on_closed is OnClosed.NEXT

    def _target(self, day: int) -> int:
        """The open day that slots of a day are on, or move to."""
        return self.calendar.open_from(day) if self._forwards() else self.calendar.open_until(day)

    def _sources(self, target: int) -> range:
        """The days whose slots are on an open day, or move to it."""
        if self._forwards():
            return range(self.calendar.open_until(target - 1) + 1, target + 1)
        return range(target, self.calendar.open_from(target + 1))

    def _first_after(self, day: int) -> int:
        """The first day whose slots are on a day after this one."""
        if not self._forwards():
            return self.calendar.open_from(day + 1)
        return day + 1 if self.calendar.is_open(day) else self.calendar.open_until(day) + 1

    def _last_before(self, day: int) -> int:
        """The last day whose slots are on a day before this one."""
        if self._forwards():
            return self.calendar.open_until(day - 1)
        return day - 1 if self.calendar.is_open(day) else self.calendar.open_from(day) - 1

    # --- the slots of one open day -----------------------------------------------------------------------------------

    def _first_on(self, target: int, after_ms: int) -> int | None:
        """The first slot on an open day after `after_ms`."""
        seen_ms = self.days.seen_ms(after_ms) if after_ms >= 0 else -_DAY_MS
        found: list[int] = []
        for day in self._sources(target):
            moved_ms = (target - day) * _DAY_MS
            for low_ms, high_ms, offset_ms in self.days.parts(day):
                # A slot that moves comes after `after_ms` where its wall time there is later than what was seen then.
                begin_ms = low_ms if day == target else max(low_ms, seen_ms - moved_ms + 1)
                from_ms = begin_ms - offset_ms - 1 if day != target else max(after_ms, begin_ms - offset_ms - 1)
                slot_ms = self.inner.next_after(from_ms) if begin_ms < high_ms else None
                if slot_ms is not None and slot_ms + offset_ms < high_ms:
                    found.append(slot_ms if day == target else self.days.real_ms(slot_ms + offset_ms + moved_ms))
        return min(found, default=None)

    def _last_on(self, target: int, at_ms: int) -> int | None:
        """The last slot on an open day at or before `at_ms`."""
        seen_ms = self.days.seen_ms(at_ms)
        found: list[int] = []
        for day in self._sources(target):
            moved_ms = (target - day) * _DAY_MS
            for low_ms, high_ms, offset_ms in self.days.parts(day):
                end_ms = high_ms if day == target else min(high_ms, seen_ms - moved_ms + 1)
                last_ms = end_ms - offset_ms - 1 if day != target else min(at_ms, end_ms - offset_ms - 1)
                slot_ms = self.inner.latest_at_or_before(last_ms, low_ms - offset_ms - 1) if low_ms < end_ms else None
                if slot_ms is not None:
                    found.append(slot_ms if day == target else self.days.real_ms(slot_ms + offset_ms + moved_ms))
        return max(found, default=None)
