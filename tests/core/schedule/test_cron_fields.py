"""Reading the five fields."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.core.schedule import Cron, ScheduleError
from fencepost.core.schedule.cron_fields import ALIASES, FIELDS, choose, parse_fields

EVERYTHING = {
    "second": tuple(range(60)),
    "minute": tuple(range(60)),
    "hour": tuple(range(24)),
    "day_of_month": tuple(range(1, 32)),
    "month": tuple(range(1, 13)),
    "day_of_week": tuple(range(7)),
    "year": tuple(range(1970, 10_000)),
}


def values(text: str, key: str) -> tuple[int, ...]:
    place = [kind.key for kind in FIELDS].index(key)
    fields = ["*"] * 7
    fields[place] = text
    return parse_fields(" ".join(fields))[place].values


@pytest.mark.parametrize("key", EVERYTHING)
def test_a_star_means_every_value(key: str) -> None:
    assert values("*", key) == values("*/1", key) == EVERYTHING[key]


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("5", "minute", (5,)),
        ("05", "minute", (5,)),
        ("0,59", "minute", (0, 59)),
        ("3,1,3,2", "minute", (1, 2, 3)),
        ("10-12", "minute", (10, 11, 12)),
        ("7-7", "minute", (7,)),
        ("*/20", "minute", (0, 20, 40)),
        ("*/60", "minute", (0,)),
        ("*/9999", "minute", (0,)),
        ("50/4", "minute", (50, 54, 58)),
        ("1-10/4,30", "minute", (1, 5, 9, 30)),
        ("2/4", "hour", (2, 6, 10, 14, 18, 22)),
        ("*/32,1-7", "day_of_month", (1, 2, 3, 4, 5, 6, 7)),
        ("*/10", "day_of_month", (1, 11, 21, 31)),
        ("JAN,Feb,mar", "month", (1, 2, 3)),
        ("jan-dec/6", "month", (1, 7)),
        ("sep/2", "month", (9, 11)),
        ("0", "day_of_week", (0,)),
        ("7", "day_of_week", (0,)),
        ("0,7", "day_of_week", (0,)),
        ("5-7", "day_of_week", (0, 5, 6)),
        ("1-7/2", "day_of_week", (0, 1, 3, 5)),
        ("0-7", "day_of_week", (0, 1, 2, 3, 4, 5, 6)),
        ("sat-7", "day_of_week", (0, 6)),
        ("Mon-FRI", "day_of_week", (1, 2, 3, 4, 5)),
        ("*/2", "day_of_week", (0, 2, 4, 6)),
        ("*/7", "day_of_week", (0,)),
        ("1/2", "day_of_week", (1, 3, 5)),
        ("7/1", "day_of_week", (0,)),
        ("15,30", "second", (15, 30)),
        ("55-5/5", "second", (0, 5, 55)),
        ("50-10/7", "minute", (4, 50, 57)),
        ("22-2", "hour", (0, 1, 2, 22, 23)),
        ("29-3", "day_of_month", (1, 2, 3, 29, 30, 31)),
        ("nov-mar", "month", (1, 2, 3, 11, 12)),
        ("11-3/3", "month", (2, 11)),
        ("fri-mon", "day_of_week", (0, 1, 5, 6)),
        ("fri-sun", "day_of_week", (0, 5, 6)),
        ("7-1", "day_of_week", (0, 1)),
        ("7-0", "day_of_week", (0,)),
        ("6-5", "day_of_week", (0, 1, 2, 3, 4, 5, 6)),
        ("6-2/2", "day_of_week", (1, 6)),
        ("?", "day_of_week", (0, 1, 2, 3, 4, 5, 6)),
        ("2026,2030-2036/3", "year", (2026, 2030, 2033, 2036)),
        ("9990/5", "year", (9990, 9995)),
    ],
)
def test_a_field_means_these_values(text: str, key: str, expected: tuple[int, ...]) -> None:
    assert values(text, key) == expected


@pytest.mark.parametrize(
    ("expression", "field", "reason"),
    [
        ("60 * * * *", "minute", "'60' is out of range; allowed: numbers 0-59"),
        ("* 24 * * *", "hour", "'24' is out of range; allowed: numbers 0-23"),
        ("* * 32 * *", "day_of_month", "'32' is out of range; allowed: numbers 1-31"),
        ("* * * 0 *", "month", "'0' is out of range; allowed: numbers 1-12, names jan-dec"),
        ("* * * * 8", "day_of_week", "'8' is out of range; allowed: numbers 0-7 (0 and 7 are Sunday), names sun-sat"),
        ("00000 * * * *", "minute", "'00000' is out of range"),
        ("9" * 900 + " * * * *", "minute", "is out of range"),
        ("0-" + "9" * 900 + " * * * *", "minute", "is out of range"),
        ("*/0 * * * *", "minute", "steps are 1-9999"),
        ("*/" + "9" * 900 + " * * * *", "minute", "steps are 1-9999"),
        ("1- * * * *", "minute", "cannot be read"),
        ("1/ * * * *", "minute", "cannot be read"),
        ("/5 * * * *", "minute", "cannot be read"),
        ("1-2-3 * * * *", "minute", "cannot be read"),
        ("1/2/3 * * * *", "minute", "cannot be read"),
        ("** * * * *", "minute", "cannot be read"),
        ("*5 * * * *", "minute", "cannot be read"),
        ("1.5 * * * *", "minute", "cannot be read"),
        ("*-5 * * * *", "minute", "a range starts with a value"),
        (", * * * *", "minute", "an item is empty"),
        ("1,,2 * * * *", "minute", "an item is empty"),
        ("1, * * * *", "minute", "an item is empty"),
        ("-5 * * * *", "minute", "signs are not accepted"),
        ("+5 * * * *", "minute", "signs are not accepted"),
        ("1_0 * * * *", "minute", "underscores are not accepted"),
        ("mon * * * *", "minute", "'mon' is not a value of this field"),
        ("* * * mon *", "month", "'mon' is not a value of this field"),
        ("* * * * jan", "day_of_week", "'jan' is not a value of this field"),
        ("* * * january *", "month", "full names are not accepted; write jan"),
        ("* * * * mon-Friday", "day_of_week", "full names are not accepted; write fri"),
        ("* * * * thurs", "day_of_week", "'thurs' is not a value of this field"),
        ("0 0 0 1 1 ? 1969", "year", "'1969' is out of range; allowed: numbers 1970-9999"),
        ("0 0 0 1 1 ? 10000", "year", "'10000' is out of range; allowed: numbers 1970-9999"),
        ("0 0 0 1 1 ? 2030-2026", "year", "years do not come again"),
        ("0 0 0 1 1 ? H", "year", "the year has none"),
        ("60 * * * * *", "second", "'60' is out of range"),
        ("* * L-31 * *", "day_of_month", "L-n is for the day of month, with n from 0 to 30"),
        ("* * 0W * *", "day_of_month", "W stands after a day from 1 to 31"),
        ("* * 32W * *", "day_of_month", "W stands after a day from 1 to 31"),
        ("* * W15 * *", "day_of_month", "W stands after a day from 1 to 31"),
        ("* * L/2 * *", "day_of_month", "'L' is not a value of this field"),
        ("* * 5L * *", "day_of_month", "L after a value is for the day of week"),
        ("* * 2#1 * *", "day_of_month", "# is for the day of week"),
        ("L * * * *", "minute", "L alone stands in the day of month only"),
        ("* * * * L", "day_of_week", "for the last Friday write 5L"),
        ("* * * * L5", "day_of_week", "write the weekday first, as in 5L"),
        ("* * * * 8L", "day_of_week", "'8L' in the field day of week"),
        ("* * * * fri#6", "day_of_week", "from the first to the fifth"),
        ("* * * * fri#0", "day_of_week", "from the first to the fifth"),
        ("* * * * jan#1", "day_of_week", "# is for the day of week"),
        ("* * * * 15W", "day_of_week", "W stands after a day"),
        ("H(50-10) * * * *", "minute", "H chooses from a range upwards"),
        ("H(5) * * * *", "minute", "H is written H, H(a-b), H/n or H(a-b)/n"),
        ("H/61 * * * *", "minute", "the step 61 is longer than the range 0-59"),
        ("H(0-4)/6 * * * *", "minute", "the step 6 is longer than the range 0-4"),
        ("H/0 * * * *", "minute", "steps are 1-9999"),
        ("* * H(1-31) * *", "day_of_month", "H chooses from a range upwards, within 1-28"),
        ("R * * * *", "minute", "R would be another value after each restart; use H"),
        ("0~30 * * * *", "minute", "~ would be another value after each restart; use H(a-b)"),
        ("? * * * *", "minute", "? stands in the day fields only"),
        ("0 0 ?,1 * 1", "day_of_month", "? stands in the day fields only, and alone"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_a_field_that_cannot_be_read_is_refused_with_its_name_and_what_is_allowed(
    expression: str, field: str, reason: str
) -> None:
    with pytest.raises(ScheduleError) as refusal:
        Cron(expression)
    assert refusal.value.field == f"cron.{field}"
    assert reason in refusal.value.message
    assert "allowed: " in refusal.value.message
    assert len(refusal.value.message) < 400


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is empty"),
        (" \t ", "is empty"),
        ("*", "has 1 field; allowed: five fields"),
        ("* * * *", "has 4 fields; allowed: five fields"),
        ("* * * * * * * *", "has 8 fields; allowed: five fields"),
        ("@reboot", "'@reboot' is not a known alias; allowed: five fields"),
        ("@every 5m", "for a fixed distance use every_s"),
        ("@daily 5", "is not a known alias"),
        ("@", "is not a known alias"),
        ("* * * *\u00a0*", r"holds '\xa0'"),
        ("* * *\n* *", r"holds '\n'"),
        ("* * * * *\0", r"holds '\x00'"),
        ("\uff10 * * * *", r"holds '\uff10'"),
        ("\u0663 * * * *", r"holds '\u0663'"),
        ("1," * 512 + "1 * * * *", "has 1033 characters; allowed: 1024 at most"),
    ],
    ids=ascii,
)
def test_an_expression_of_the_wrong_form_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as refusal:
        Cron(expression)
    assert refusal.value.field == "cron"
    assert reason in refusal.value.message
    assert "allowed: " in refusal.value.message


def test_plain_white_space_and_the_longest_text_are_accepted() -> None:
    assert parse_fields("\t 0\t\t0 * * *  \r\n") == parse_fields("0 0 * * *")
    longest = "1," * 507 + "1 * * * *"
    assert parse_fields(longest + " ") == parse_fields("1 * * * *")


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_in_any_case_means_its_fields(alias: str) -> None:
    for text in (alias, alias.upper(), f" {alias.title()} "):
        assert parse_fields(text) == parse_fields(ALIASES[alias])


def test_six_fields_begin_with_the_second_and_seven_end_with_the_year() -> None:
    assert parse_fields("5 * * * *") == parse_fields("0 5 * * * *") == parse_fields("0 5 * * * * *")
    second, minute, *_, year = parse_fields("30 5 * * * * 2030")
    assert (second.values, minute.values, year.values) == ((30,), (5,), (2030,))


def test_days_that_depend_on_the_month_are_kept_apart_from_the_numbers() -> None:
    day = parse_fields("0 0 15W,1,lw,L-3,L,l * *")[3]
    assert day.values == (1,)
    assert [form.text for form in day.forms] == ["15W", "L", "L-3", "LW"]
    weekday = parse_fields("0 0 * * 7#1,FRI#2,3,5L")[5]
    assert weekday.values == (3,)
    assert [form.text for form in weekday.forms] == ["0#1", "5#2", "5L"]


@pytest.mark.parametrize(
    ("text", "key", "low", "high", "step"),
    [
        ("H", "minute", 0, 59, 60),
        ("h", "hour", 0, 23, 24),
        ("H", "day_of_month", 1, 28, 28),
        ("H", "month", 1, 12, 12),
        ("H", "day_of_week", 0, 6, 7),
        ("H(0-7)", "hour", 0, 7, 8),
        ("H(mon-fri)", "day_of_week", 1, 5, 5),
        ("H/15", "minute", 0, 59, 15),
        ("H(0-29)/10", "minute", 0, 29, 10),
        ("H/1", "second", 0, 59, 1),
    ],
)
def test_an_id_chooses_one_value_or_the_start_of_the_steps(text: str, key: str, low: int, high: int, step: int) -> None:
    place = [kind.key for kind in FIELDS].index(key)
    texts = ["*"] * 7
    texts[place] = text
    fields = parse_fields(" ".join(texts))
    starts = set()
    for number in range(500):
        chosen = choose(fields, f"invoice/{number}")
        assert chosen == choose(fields, f"invoice/{number}")
        values = chosen[place].values
        assert not chosen[place].star
        assert values == tuple(range(values[0], high + 1, step))
        starts.add(values[0])
    assert starts == set(range(low, min(low + step, high + 1)))  # all of them are chosen by somebody


def test_what_an_id_chooses_stays_as_it_is() -> None:
    # Slots of tasks that are defined already would move.
    fields = parse_fields("H H(0-7) H * *")
    assert [field.values for field in choose(fields, "invoice/7")[1:4]] == [(45,), (2,), (6,)]
    assert [field.values for field in choose(fields, "invoice/8")[1:4]] != [(45,), (2,), (6,)]
    everything = choose(fields, None)
    assert [len(field.values) for field in everything[1:4]] == [60, 8, 28]


def test_the_aliases_are_these() -> None:
    assert set(ALIASES) == {"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}
    assert Cron("@weekly").next_after(0) == 3 * 86_400_000  # 1970-01-04 was a Sunday


@given(
    st.text(alphabet="0123456789*/-,LWH#?~_@() \tmonjanFRI" + "\uff10\n", max_size=60)
    | st.text(st.characters(max_codepoint=0x6FF), max_size=40)
)
@example("* * * * *")
@example("@daily")
def test_any_text_is_read_or_refused_with_what_is_allowed(text: str) -> None:
    try:
        fields = parse_fields(text)
    except ScheduleError as error:
        refusal = error
    else:
        assert all(field.values or field.forms or field.hashed for field in fields)
        return
    assert refusal.field.startswith("cron")
    assert "allowed: " in refusal.message
    assert len(refusal.message) < 600


@given(
    st.lists(
        st.text(alphabet=string.ascii_letters + string.digits + "*/-,#", min_size=1, max_size=8), min_size=5, max_size=5
    )
)
def test_any_five_words_are_read_or_refused_with_the_name_of_a_field(words: list[str]) -> None:
    try:
        fields = parse_fields(" ".join(words))
    except ScheduleError as error:
        refusal = error
    else:
        assert all(field.values or field.forms or field.hashed for field in fields)
        return
    assert refusal.field in {f"cron.{kind.key}" for kind in FIELDS}
