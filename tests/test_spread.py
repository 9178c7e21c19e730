"""The table of what is long, and of what is spread test by test, names what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spread import CONTAINERS, EACH_ALONE, LONG, unit_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("file", sorted(EACH_ALONE))
def test_a_file_that_is_spread_test_by_test_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("unit", LONG)
def test_what_is_long_is_a_unit_that_is_there(unit: str) -> None:
    file, _, test = unit.partition("::")
    assert (ROOT / file).exists()
    assert bool(test) == (file in EACH_ALONE)
    assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_a_file_stays_together_unless_it_is_listed() -> None:
    (alone, *_) = sorted(EACH_ALONE)
    assert unit_of(f"{alone}::test_x[1]") == f"{alone}::test_x[1]"
    assert unit_of("tests/kafka/test_admin.py::test_x") == "tests/kafka/test_admin.py"
    assert unit_of("tests/containers/test_compose.py::test_x") == CONTAINERS
