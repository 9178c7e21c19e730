"""The shipped rules, in a world with the shipped app."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import SourceRecord
from fencepost.app import load_app
from fencepost.cli.rules import read_rule_files
from fencepost.codec import dumps
from fencepost.kafka.topics import Topics
from fencepost.testing import world
from fencepost.views.firing import Firing
from tests.docs.test_readme_facts import ROOT

EXAMPLES = ROOT / "config" / "examples"


def record(topic: str, value: Any, key: bytes = b"o-1") -> SourceRecord:
    return SourceRecord(topic, 0, 3, key, dumps(value), ())


def test_the_shipped_rules_trigger_what_the_shipped_app_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    firing = Firing(read_rule_files([EXAMPLES / "rules.toml"]), Topics("fencepost"), 16, "/test")
    order = {"kind": "delivered", "customer": {"id": "c-7"}, "lines": ["tea", "cups"]}
    failed = {"kind": "failed", "task": "report", "given_up": "failed in attempt 5 of 5"}
    left_alone = [
        record("orders", {**order, "kind": "created"}),
        record("fencepost.runs", {**failed, "task": "prices"}),
        record("fencepost.runs", {"kind": "failed", "task": "report", "retry_at": "2026-01-01T00:00:00Z"}),
    ]
    assert [fired for fired in map(firing.fire, left_alone) if fired.triggers or fired.bad] == []
    with world(load_app("shop:app"), at="2026-01-01T03:00:00Z") as made:
        for fired in map(firing.fire, (record("orders", order), record("fencepost.runs", failed))):
            assert fired.bad == ()
            for trigger in fired.triggers:
                made.produce("triggers", trigger.task, trigger.value)
        made.advance("10m")
        (invoice,) = made.runs("invoice/c-7")
        assert invoice.lines == ("epoch 1: line 1: tea", "epoch 1: line 2: cups")
        made.advance("6h")
        assert [(run.task, run.started.hour) for run in made.runs("report")] == [("report", 9)]
