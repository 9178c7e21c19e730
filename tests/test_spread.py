"""The table of what is long, and of what is spread test by test, names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import MARKER_OF_FOLDER, NO_BROKER
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


@pytest.mark.parametrize(("name", "folders"), [("NO_BROKER", NO_BROKER), ("BROKERS_ONLY", set(MARKER_OF_FOLDER))])
def test_the_makefile_leaves_out_the_folders_that_are_known_to_have_nothing_for_a_part(
    name: str, folders: set[str]
) -> None:
    line = re.search(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    assert set(line[1].split()) == folders
    assert all((ROOT / "tests" / folder).is_dir() for folder in folders)
