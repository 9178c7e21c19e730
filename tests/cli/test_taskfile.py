"""Task files become the same definitions as records, or are refused with file, task and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.app import load_app
from fencepost.cli.apply import compare
from fencepost.cli.failures import BadInput
from fencepost.cli.taskfile import read_task_files
from fencepost.core.schedule import Adjusted, Calendar, Cron, Every, Once, OnClosed, Several, upcoming
from fencepost.core.task import CommandHandler, Definition, Isolation, Overlap, PythonHandler, Retry
from fencepost.core.times import format_ms_in, parse_rfc3339
from fencepost.wire.definition import encode_definition, read_definition

GOOD = """
[[task]]
id = "report"
handler = {kind = "python", function = "report"}
cron = "0 2 * * *"
time_zone = "Europe/Berlin"
retry = {attempts = 5, delay_s = "10s"}
timeout = "5m"

[[task]]
id = "clean"
handler = {kind = "command", argv = ["/usr/bin/true", "-x"], env = {A = "1"}}
every = "1h30m"
anchor = 1970-01-01T00:10:00Z
isolation = "own"
overlap = "skip"
payload = {n = [1, 2]}

[[task]]
id = "once"
handler = {kind = "python", function = "f"}
at = 2026-12-01T08:00:00+01:00
"""


def read(tmp_path: Path, text: str) -> list[Definition]:
    path = tmp_path / "tasks.toml"
    path.write_text(text)
    return read_task_files([path])


def test_a_file_becomes_definitions(tmp_path: Path) -> None:
    report, clean, once = read(tmp_path, GOOD)
    assert report == Definition(
        "report",
        PythonHandler("report"),
        Cron("0 2 * * *", "Europe/Berlin"),
        Retry(attempts=5, delay_s=10.0),
        300.0,
        overlap=Overlap.BUFFER_ONE,
    )
    assert clean == Definition(
        "clean",
        CommandHandler(("/usr/bin/true", "-x"), (("A", "1"),)),
        Every(5400.0, 600_000),
        overlap=Overlap.SKIP,
        isolation=Isolation.OWN,
        payload={"n": [1, 2]},
    )
    assert once.schedule == Once(1_796_108_400_000)


def test_a_file_gives_several_schedules_with_bounds_jitter_and_calendars(tmp_path: Path) -> None:
    several_, one = read(
        tmp_path,
        """
[[task]]
id = "several"
handler = {kind = "python", function = "f"}
schedule = [
  {cron = "H 9 * * mon-fri", time_zone = "Europe/Berlin", calendar = {country = "DE", on_closed = "next"}},
  {every = "1h", anchor = 1970-01-01T00:10:00Z, start = 2026-12-01T00:00:00Z, jitter = "5m"},
  {at = 2026-12-01T08:00:00+01:00},
]

[[task]]
id = "one"
handler = {kind = "python", function = "f"}
cron = "0 9 * * *"
end = 2027-01-01T00:00:00Z
jitter = "90s"
calendar = {weekdays_only = true, closed = [2026-12-24, "2026-12-31"]}
""",
    )
    assert several_.schedule == Several(
        (
            Adjusted(Cron("H 9 * * mon-fri", "Europe/Berlin"), calendar=Calendar("DE", on_closed=OnClosed.NEXT)),
            Adjusted(Every(3600, 600_000), start_ms=1_796_083_200_000, jitter_s=300.0),
            Once(1_796_108_400_000),
        )
    ).for_task("several")
    closed = Calendar(weekdays_only=True, closed=("2026-12-24", "2026-12-31"))
    assert one.schedule == Adjusted(
        Cron("0 9 * * *"), end_ms=1_798_761_600_000, jitter_s=90.0, calendar=closed
    ).for_task("one")
    for definition in (several_, one):
        assert read_definition(definition.task.encode(), encode_definition(definition)) == (definition.task, definition)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[task]]\nid = 'a'", "task 1 .'a'.: handler"),
        ("[[task]]\nhandler = {kind = 'python', function = 'f'}", "task 1: id: a task ID is a string"),
        ("[[task]]\nid = ''\n", "task 1: id: a task ID has at least one character"),
        (f"{GOOD}[[task]]\nid = 'report'\nhandler = {{kind = 'python', function = 'f'}}", "'report' is defined twice"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\ncorn='x'", "corn"),
        ("[[task]]\nid='a/shard/0'\nhandler={kind='python', function='f'}\nshard_of='a'", "shard_of: is written by"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\ncron='61 * * * *'", "cron.*61"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\ncron='* * * * *'\nat='x'", "cron and at are given"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\ntime_zone='UTC'", "none of cron"),
        (
            "[[task]]\nid='a'\nhandler={kind='python', function='f'}\nevery='1h'\njitter='8d'",
            "jitter_s: .*7 days",
        ),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\nschedule=[]", "schedule: "),
        (
            "[[task]]\nid='a'\nhandler={kind='python', function='f'}\nschedule=[{cron='61 * * * *'}]",
            "cron.minute: .*61",
        ),
        (
            "[[task]]\nid='a'\nhandler={kind='python', function='f'}\nevery='1h'\ncalendar={land='DE'}",
            "calendar.land: unknown field; allowed: country",
        ),
        ("[[task]]\nid='a'\nhandler={kind='shell', argv=['x']}", "handler.kind"),
        ("[[task]]\nid='a'\nhandler={kind='command', argv=[]}", "handler.argv"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\npriority=10", "priority"),
        ("[[task]]\nid='a'\nhandler={kind='python', function='f'}\ntimeout='soon'", "timeout"),
        (
            "[[task]]\nid='a'\nhandler={kind='python', function='f'}\nevery=2\nschedule={}",
            "given beside every",
        ),
        ("[task]\nid='a'", "write ..task.., with two brackets"),
        ("[[tasks]]\nid='a'", "unknown key 'tasks'; allowed: ..task.. tables"),
        ("[[task", "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_file_task_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=rf"tasks\.toml.*{message}"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*gone\.toml: No such file"):
        read_task_files([tmp_path / "gone.toml"])


def test_a_task_in_two_files_names_both(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text("[[task]]\nid = 'x'\nhandler = {kind = 'python', function = 'f'}")
    with pytest.raises(BadInput, match=r"b\.toml: task 'x' is defined twice \(also in .*a\.toml\)"):
        read_task_files([tmp_path / "a.toml", tmp_path / "b.toml"])


def test_the_shipped_example_is_valid_and_names_functions_that_its_app_has(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).resolve().parents[2] / "config" / "examples"
    monkeypatch.syspath_prepend(str(examples))
    tasks = read_task_files([examples / "tasks.toml"])
    handlers = {task.handler.function for task in tasks if isinstance(task.handler, PythonHandler)}
    assert handlers == {"refresh_prices", "report", "migrate", "send_newsletter"}
    assert handlers <= set(load_app("shop:app").handlers())


def definition(task: str, function: str = "f", **fields: object) -> Definition:
    return Definition(task, PythonHandler(function), **fields)  # type: ignore[arg-type]


def test_the_difference_names_what_is_new_changed_equal_and_left_over() -> None:
    known = {"same": definition("same"), "other": definition("other"), "old": definition("old"), "broken": None}
    wanted = [definition("new"), definition("same"), definition("other", "g", priority=1), definition("broken")]
    difference = compare(wanted, known, prune=False)
    assert [item.task for item in difference.created] == ["new"]
    assert difference.unchanged == ("same",)
    assert {item.task: fields for item, fields in difference.changed} == {
        "other": (
            ("handler", {"kind": "python", "function": "f"}, {"kind": "python", "function": "g"}),
            ("priority", None, 1),
        ),
        "broken": (
            ("handler", None, {"kind": "python", "function": "f"}),
            ("task", None, "broken"),
            ("v", None, 1),
        ),
    }
    assert (difference.deleted, difference.others) == ((), ("old",))
    assert compare(wanted, known, prune=True).deleted == ("old",)


def test_the_example_of_schedules_says_what_its_words_say() -> None:
    examples = Path(__file__).resolve().parents[2] / "config" / "examples"
    tasks = {item.task.removeprefix("schedules/"): item for item in read_task_files([examples / "schedules.toml"])}

    def slots(name: str, after: str, count: int, zone: str = "Europe/Berlin") -> list[str]:
        schedule = tasks[name].schedule
        assert schedule is not None
        return [format_ms_in(slot_ms, zone)[:16] for slot_ms in upcoming(schedule, parse_rfc3339(after), count)]

    assert slots("payroll", "2027-01-01T00:00:00Z", 2) == ["2027-01-29T09:00", "2027-02-26T09:00"]
    # The 12th of October 2027 is a Tuesday, and the second one.
    assert slots("board", "2027-07-14T00:00:00Z", 1, "America/New_York") == ["2027-10-12T14:00"]
    night, *day = slots("poll", "2027-01-01T22:00:00Z", 2)
    assert "2027-01-02T01:00" <= night < "2027-01-02T05:00"
    assert day == ["2027-01-02T07:00"]
    first, *rest = slots("campaign", "2027-01-01T00:00:00Z", 1000, "UTC")
    assert "2027-03-01T00:00" <= first < "2027-03-01T00:20"
    assert len(rest) == 31 * 4
    assert rest[-1] == "2027-04-01T00:00"
    assert slots("shop", "2026-12-31T12:00:00Z", 2) == ["2027-01-07T08:00", "2027-01-08T08:00"]
