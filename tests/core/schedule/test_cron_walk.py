"""What is asked of croniter, which must come out alike in every release that may be installed."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

import croniter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.schedule.cron_walk import times_of_day

ROOT = Path(__file__).parents[3]


def some_of(below: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.integers(0, below - 1), min_size=1).map(sorted).map(tuple)


@given(seconds=some_of(60), minutes=some_of(60), hours=some_of(24), at_s=st.integers(0, 86_400))
def test_the_walk_gives_each_time_of_the_day_once_and_in_order(
    seconds: tuple[int, ...], minutes: tuple[int, ...], hours: tuple[int, ...], at_s: int
) -> None:
    times = times_of_day(seconds, minutes, hours)
    assert times.hours == tuple(hour * 3600 for hour in hours)
    assert times.minutes == tuple(minute * 60 for minute in minutes)
    assert times.seconds == seconds
    assert len(times) == len(hours) * len(minutes) * len(seconds)
    number = times.before(at_s)
    assert number == sum(
        hour * 3600 + minute * 60 + second < at_s for hour in hours for minute in minutes for second in seconds
    )
    assert number == 0 or times[number - 1] < at_s
    assert number == len(times) or times[number] >= at_s
    assert times[-1] == hours[-1] * 3600 + minutes[-1] * 60 + seconds[-1]


def test_a_day_has_86400_seconds() -> None:
    times = times_of_day(tuple(range(60)), tuple(range(60)), tuple(range(24)))
    assert [times[number] for number in range(len(times))] == list(range(86_400))


def test_the_release_that_walks_is_the_one_asked_for() -> None:
    # `under_croniter.py` asks for releases; else it is the one of the environment.
    asked_for = os.environ.get("FENCEPOST_TEST_CRONITER", version("croniter"))
    folder = Path(croniter.__file__).parents[1]
    assert (folder / f"croniter-{asked_for}.dist-info").is_dir()


def test_the_environment_has_the_oldest_release_that_is_allowed() -> None:
    """So every other test runs under that one, and `make test-croniter` need only run the newest."""
    if "FENCEPOST_TEST_CRONITER" in os.environ:
        pytest.skip("another release was asked for")
    allowed = re.search(r'"croniter>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert allowed is not None
    assert version("croniter") == allowed[1]
