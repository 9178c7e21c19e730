"""The page about guarantees says what was measured, of every kind of fault, and what it names is there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fencepost.settings import PROFILES
from tests.docs.test_readme_facts import ROOT
from tests.faults import figures
from tests.faults.kinds import ALL

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    body: dict[str, Any] = json.loads((ROOT / "docs" / "figures" / "faults.json").read_text(encoding="utf-8"))
    return body


def test_the_tables_are_those_that_the_figures_make(measured: dict[str, Any]) -> None:
    assert figures.fill(PAGE, measured) == PAGE


def test_every_kind_of_fault_is_counted_or_said_not_to_have_been_injected() -> None:
    for kind in ALL:
        assert f"\n| {kind.name} | " in PAGE


def test_counts_add_up(measured: dict[str, Any]) -> None:
    rows = figures.by_kind(measured)
    injected = sum(1 for _ in figures.entries(measured))
    assert rows[-1][0] == "all"
    assert int(rows[-1][1]) + int(rows[-1][2]) == injected


def test_what_did_not_hold_is_not_hidden(measured: dict[str, Any]) -> None:
    """A violation shows in the counts; a page that says 0 has figures without one."""
    violations = [text for arena in measured["arenas"] for text in arena["violations"]]
    overlaps, slots = (int(cell) for cell in figures.by_kind(measured)[-1][3:5])
    assert bool(violations) == bool(overlaps + slots)


def test_assumptions_have_letters_in_order_and_files_that_are_named_exist() -> None:
    letters = re.findall(r"^\| \*\*([A-Z])\*\* \|", PAGE, re.MULTILINE)
    assert letters == [chr(ord("A") + place) for place in range(len(letters))]
    for path in re.findall(r"`(tests/[\w/]+(?:\.py|/))`", PAGE):
        assert (ROOT / path).exists(), path


def test_the_timeouts_told_are_those_of_the_profiles() -> None:
    told = re.search(r"session timeout \((.*?)\)", PAGE)
    assert told is not None
    assert told[1] == ", ".join(
        f"{PROFILES[name]['session_timeout_s']:g} s `{name}`" for name in ("quick", "swift", "standard")
    )


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert figures.quantile(values, 0.5) == 50.0
    assert figures.quantile(values, 0.95) == 95.0
    assert figures.quantile([7.0], 0.95) == 7.0
    assert figures.spread([]) == "not measured"
    assert figures.spread([1.0, 2.0, 3.0]) == "2.0 / 3.0 / 3.0 (3)"
