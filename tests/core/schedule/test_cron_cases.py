"""Cases that went wrong in other schedulers, each by its letter and number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.schedule import Cron, ScheduleError, upcoming
from fencepost.core.times import format_ms, format_ms_in, parse_rfc3339

CASES_FOLDER = Path(__file__).parents[2] / "cases"
CASES: list[dict[str, Any]] = json.loads((CASES_FOLDER / "cron.json").read_text())
TEXTS: list[dict[str, Any]] = json.loads((CASES_FOLDER / "cron_accept_or_refuse.json").read_text())


def by_id(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


def text_of(case: dict[str, Any]) -> str:
    return "1," * 100_000 + "1 * * * *" if "expr_make" in case else case["expr"]


def test_no_case_is_left_out() -> None:
    ids = {case["id"] for case in CASES}
    assert len(ids) == len(CASES) == 49
    assert len(TEXTS) == 20


@pytest.mark.parametrize("case", by_id([case for case in CASES if case["expect"]]))
def test_the_next_slots_are_exactly_those_of_the_case(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], case["tz"])
    base_ms, expected = parse_rfc3339(case["base"]), [parse_rfc3339(text) for text in case["expect"]]
    found = upcoming(cron, base_ms, len(expected))
    assert [format_ms_in(slot_ms, case["tz"]) for slot_ms in found] == case["expect"]
    assert cron.count(base_ms, expected[-1], 1_000) == len(expected)
    backwards = [cron.latest_at_or_before(slot_ms, base_ms) for slot_ms in expected]
    assert backwards == expected
    assert cron.latest_at_or_before(expected[0] - 1, base_ms) is None


@pytest.mark.parametrize("case", by_id([case for case in CASES if not case["expect"]]))
def test_an_expression_that_never_fires_is_refused_with_the_reason(case: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="never fires: no month among 2 has a day among 31") as refusal:
        Cron(case["expr"], case["tz"])
    assert refusal.value.field == "cron"


@pytest.mark.parametrize("case", [pytest.param(case, id=str(text_of(case))[:24]) for case in TEXTS])
def test_a_text_is_accepted_or_refused_as_the_case_says(case: dict[str, Any]) -> None:
    text = text_of(case)
    if case["should"] == "accept":
        assert Cron(text).next_after(0) is not None
        return
    with pytest.raises(ScheduleError, match="allowed: ") as refusal:
        Cron(text)
    assert len(str(refusal.value)) < 400


def test_after_the_last_slot_of_the_calendar_there_is_none() -> None:
    cron = Cron("0 0 1 1 *")
    assert [format_ms(slot_ms) for slot_ms in upcoming(cron, parse_rfc3339("9998-06-01T00:00:00Z"), 5)] == [
        "9999-01-01T00:00:00.000Z"
    ]
