"""What the page about views states as facts is what the code says."""

from __future__ import annotations

import re
from dataclasses import fields

from fencepost.views.condition import OPERATORS
from fencepost.views.firing import MOST_IN_FLIGHT
from fencepost.views.intake import AHEAD, BATCH
from fencepost.views.record import PARTS, SourceRecord
from fencepost.views.rule import MOST_TRIGGERS, Declared, Trigger
from tests.docs.test_readme_facts import ROOT

PAGE = (ROOT / "docs" / "views.md").read_text(encoding="utf-8")


def test_every_operator_part_and_field_is_named() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert set(OPERATORS) <= named
    assert set(PARTS) - {"headers"} <= named
    assert {item.name for item in fields(Declared)} <= named
    assert {item.name for item in fields(SourceRecord)} <= named
    assert f"`Trigger({', '.join(item.name for item in fields(Trigger))})`" in PAGE


def test_numbers_are_those_of_the_code() -> None:
    assert MOST_IN_FLIGHT == 90
    assert "more than 90 triggers" in PAGE
    assert f"or nothing; {MOST_TRIGGERS} at most" in PAGE
    assert f"{AHEAD} records are read ahead" in PAGE
    assert BATCH <= MOST_IN_FLIGHT


def test_every_metric_is_named() -> None:
    source = (ROOT / "streams" / "fencepost" / "views" / "ruling.py").read_text(encoding="utf-8")
    assert all(f"{name}_total`" in PAGE for name in re.findall(r'"(fencepost_rules_\w+)"', source))
