"""What is asked of croniter, which must come out alike in every release that may be installed."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import croniter
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.schedule.cron_walk import times_of_day


def some_of(below: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.integers(0, below - 1), min_size=1).map(sorted).map(tuple)


@given(minutes=some_of(60), hours=some_of(24))
def test_the_walk_gives_each_time_of_the_day_once_and_in_order(
    minutes: tuple[int, ...], hours: tuple[int, ...]
) -> None:
    assert times_of_day(minutes, hours) == tuple(hour * 3600 + minute * 60 for hour in hours for minute in minutes)


def test_a_day_has_1440_minutes() -> None:
    assert times_of_day(tuple(range(60)), tuple(range(24))) == tuple(range(0, 86_400, 60))


def test_the_release_that_walks_is_the_one_asked_for() -> None:
    # `under_croniter.py` asks for releases; else it is the one of the environment.
    asked_for = os.environ.get("FENCEPOST_TEST_CRONITER", version("croniter"))
    folder = Path(croniter.__file__).parents[1]
    assert (folder / f"croniter-{asked_for}.dist-info").is_dir()
