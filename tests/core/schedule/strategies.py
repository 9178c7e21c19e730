"""Expressions, and places in time where the clock is changed, for the property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from fencepost.core.times import parse_rfc3339

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

# Zone and the moment its offset changes: gaps and repeated hours of 15 min to 24 h, at midnight and a minute past it,
# with and without summer time, in both halves of the world; and times at which nothing changes.
CHANGES = [
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("Europe/Dublin", "2019-03-31T01:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/St_Johns", "2010-03-14T03:31:00Z"),
    ("America/St_Johns", "2010-11-07T02:31:00Z"),
    ("America/Santiago", "2022-09-11T04:00:00Z"),
    ("Asia/Beirut", "2026-10-24T21:00:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),
    ("Antarctica/Casey", "2009-10-17T18:00:00Z"),
    ("Antarctica/Casey", "2010-03-04T15:00:00Z"),
    ("Antarctica/Vostok", "1994-01-31T17:00:00Z"),
    ("Antarctica/Vostok", "1994-11-01T00:00:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("UTC", "2028-02-29T00:00:00Z"),
    ("Asia/Kolkata", "2026-12-31T18:30:00Z"),
]


def changes() -> st.SearchStrategy[tuple[str, int]]:
    """Zone and moment, in seconds since the epoch."""
    return st.sampled_from([(zone, parse_rfc3339(text) // 1000) for zone, text in CHANGES])


def fields(
    low: int, high: int, names: list[str] | None = None, likely: list[int] | None = None
) -> st.SearchStrategy[str]:
    def written(value: int) -> st.SearchStrategy[str]:
        numbers = [str(value), f"{value:02d}"]
        return st.sampled_from([*numbers, *([names[value - low].title(), names[value - low]] if names else [])])

    numbers = st.integers(low, high)
    values = (st.sampled_from(likely) | numbers if likely else numbers).flatmap(written)
    # As they come: where the second lies before the first, the range goes around the end of the field.
    pairs = st.tuples(numbers, numbers).flatmap(lambda pair: st.tuples(written(pair[0]), written(pair[1])))
    ranges = pairs.map("-".join)
    steps = st.integers(1, high + 3)
    items = st.one_of(
        values,
        ranges,
        st.builds("{}/{}".format, ranges, steps),
        st.builds("{}/{}".format, values, steps),
        st.builds("*/{}".format, steps),
    )
    return st.just("*") | st.lists(items, min_size=1, max_size=3).map(",".join)


def weekday_fields() -> st.SearchStrategy[str]:
    sundays = st.sampled_from(["7", "5-7", "1-7/2", "0-7", "sat-7", "6-7/1", "7,1", "fri-mon", "6-2/2", "7-1"])
    weekdays = st.sampled_from([*WEEKDAYS, *map(str, range(8))])
    forms = st.builds("{}#{}".format, weekdays, st.integers(1, 5)) | st.builds("{}{}".format, weekdays, st.just("L"))
    return fields(0, 6, WEEKDAYS) | sundays | st.lists(forms | weekdays, min_size=1, max_size=3).map(",".join)


def day_fields() -> st.SearchStrategy[str]:
    days = st.integers(1, 31)
    forms = st.one_of(
        st.sampled_from(["L", "l", "LW", "lw"]),
        st.builds("L-{}".format, st.integers(0, 30)),
        st.builds("L-{}W".format, st.integers(0, 30)),
        st.builds("{}W".format, days),
    )
    return fields(1, 31) | st.lists(forms | days.map(str), min_size=1, max_size=3).map(",".join)


def year_fields(around: int) -> st.SearchStrategy[str]:
    years = st.integers(max(1970, around - 3), min(9999, around + 3))
    ranges = st.tuples(years, years).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
    steps = st.builds("{}/{}".format, ranges | st.just("*"), st.integers(1, 5))
    return st.just("*") | st.lists(st.one_of(years.map(str), ranges, steps), min_size=1, max_size=2).map(",".join)


def expressions() -> st.SearchStrategy[str]:
    """Five fields in any form, mostly with times of day near those at which clocks are changed."""
    days = st.just("*") | st.just("?") | day_fields()
    weekdays = st.just("*") | st.just("?") | weekday_fields()
    months = st.just("*") | fields(1, 12, MONTHS)
    hours = fields(0, 23, likely=[0, 1, 2, 3, 4, 22, 23])
    minutes = fields(0, 59, likely=[0, 15, 30, 45, 59])
    return st.tuples(minutes, hours, days, months, weekdays).map(" ".join)


def long_expressions(around: int) -> st.SearchStrategy[str]:
    """Six and seven fields. `around`: a year."""
    seconds = fields(0, 59, likely=[0, 30, 59])
    return st.tuples(seconds, expressions()).map(" ".join) | st.tuples(seconds, expressions(), year_fields(around)).map(
        " ".join
    )
