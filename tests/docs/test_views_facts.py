"""What the page about views states as facts is what the code says."""

from __future__ import annotations

import re
from dataclasses import fields

from fencepost.views.alarms import Limits
from fencepost.views.condition import OPERATORS
from fencepost.views.firing import MOST_IN_FLIGHT
from fencepost.views.intake import AHEAD, BATCH
from fencepost.views.record import PARTS, SourceRecord
from fencepost.views.rule import MOST_TRIGGERS, Declared, Trigger
from fencepost.views.watching import LOOK_BACK_MS
from fencepost.wire.alert import KINDS
from tests.docs.test_readme_facts import ROOT, rows_of

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
    for name in ("ruling", "watching"):
        source = (ROOT / "streams" / "fencepost" / "views" / f"{name}.py").read_text(encoding="utf-8")
        found = re.findall(r'(Counter|Gauge)\(\s*"(fencepost_\w+)"', source)
        assert len(found) == 3
        for kind, metric in found:
            assert f"`{metric}{'_total' if kind == 'Counter' else ''}`" in PAGE


def test_every_kind_of_alert_is_explained_with_the_stock_limits() -> None:
    assert tuple(cells[0].strip("`") for cells in rows_of(PAGE, "kind")) == KINDS
    limits = Limits()
    assert f"`--failures` ({limits.failures})" in PAGE
    assert (limits.late_s, limits.stuck_s) == (60, 3600)
    assert "`--late` (1m)" in PAGE
    assert "`--stuck` (1h)" in PAGE
    assert LOOK_BACK_MS == 24 * 3_600_000
    assert "failures of the last 24 hours" in PAGE
