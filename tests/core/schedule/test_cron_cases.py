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

# What needs a form that cannot be written yet: the field that is named, and a part of the reason.
NOT_YET = {
    "D23": ("cron.month", "ranges around the end"),
    "D27": ("cron.day_of_month", "L (the last day)"),
    "D29": ("cron.day_of_month", "W (the nearest working day)"),
    "D31": ("cron.day_of_month", "W (the nearest working day)"),
    "D33": ("cron.day_of_month", "W (the nearest working day)"),
    "D35": ("cron.day_of_week", "# (the n-th such weekday)"),
    "D37": ("cron.day_of_week", "# (the n-th such weekday)"),
    "Y01": ("cron", "has 7 fields"),
    "Y03": ("cron", "has 6 fields"),
}
TEXTS_NOT_YET = {
    "0 0 L-3 * *": ("cron.day_of_month", "L (the last day)"),
    "0 0 29 2 1#5": ("cron.day_of_week", "# (the n-th such weekday)"),
}


def by_id(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


def text_of(case: dict[str, Any]) -> str:
    return "1," * 100_000 + "1 * * * *" if "expr_make" in case else case["expr"]


def test_no_case_is_left_out() -> None:
    ids = {case["id"] for case in CASES}
    assert len(ids) == len(CASES) == 49
    assert set(NOT_YET) < ids
    assert set(TEXTS_NOT_YET) < {case.get("expr") for case in TEXTS}


@pytest.mark.parametrize("case", by_id([case for case in CASES if case["expect"] and case["id"] not in NOT_YET]))
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


@pytest.mark.parametrize("case", by_id([case for case in CASES if case["id"] in NOT_YET]))
def test_a_form_that_is_not_read_yet_is_refused_by_name(case: dict[str, Any]) -> None:
    field, reason = NOT_YET[case["id"]]
    with pytest.raises(ScheduleError) as refusal:
        Cron(case["expr"], case["tz"])
    assert refusal.value.field == field
    assert reason in refusal.value.message
    assert "allowed: " in refusal.value.message


@pytest.mark.parametrize("case", [pytest.param(case, id=str(text_of(case))[:24]) for case in TEXTS])
def test_a_text_is_accepted_or_refused_as_the_case_says(case: dict[str, Any]) -> None:
    text = text_of(case)
    if case["should"] == "accept" and text not in TEXTS_NOT_YET:
        assert Cron(text).next_after(0) is not None
        return
    with pytest.raises(ScheduleError, match="allowed: ") as refusal:
        Cron(text)
    assert len(str(refusal.value)) < 400
    if text in TEXTS_NOT_YET:
        field, reason = TEXTS_NOT_YET[text]
        assert refusal.value.field == field
        assert reason in refusal.value.message


def test_after_the_last_slot_of_the_calendar_there_is_none() -> None:
    cron = Cron("0 0 1 1 *")
    assert [format_ms(slot_ms) for slot_ms in upcoming(cron, parse_rfc3339("9998-06-01T00:00:00Z"), 5)] == [
        "9999-01-01T00:00:00.000Z"
    ]
