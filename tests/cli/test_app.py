"""Declaring tasks in an app: what it says, what it refuses, and that it loads no client of Kafka."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.app import App, AppError, Calendar, Command, Http, adjusted, at, every, load_app
from fencepost.core.schedule import Adjusted, Cron, Every, Once, ScheduleError, Several
from fencepost.core.task import Overlap, Retry
from fencepost.wire.definition import definition_from_json


def test_a_task_is_declared_as_the_definition_record_would_say_it() -> None:
    app = App("shop")

    @app.task("report", schedule=Cron("0 2 * * *", time_zone="Europe/Berlin"), retry=Retry(attempts=5), timeout="5m")
    def report(ctx: Any) -> None: ...

    @app.task("invoice/*", isolation="own", on_handover="stop", priority=2)
    async def invoice(ctx: Any) -> None: ...

    assert app.declared() == [
        {
            "v": 1,
            "task": "report",
            "handler": {"kind": "python", "function": "report"},
            "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
            "retry": {"attempts": 5},
            "timeout_s": 300.0,
        },
        {
            "v": 1,
            "task": "invoice/*",
            "handler": {"kind": "python", "function": "invoice"},
            "isolation": "own",
            "on_handover": "stop",
            "priority": 2,
        },
    ]
    assert app.handlers() == {"report": report, "invoice": invoice}


def test_what_is_declared_reads_back_as_the_same_definition() -> None:
    app = App("shop")
    app.command("clean", Command("/bin/true", "-x", env={"A": "1"}), schedule=every("1h30m"), timeout=10)
    app.http("call", Http("http://a/b", method="GET", success=[200, "404-410"], timeout_s="5s"), timeout="1m")
    app.task("t", schedule=at("2026-12-01T08:00:00+01:00"), overlap="cancel", payload={"n": 1})(print)
    back = [definition_from_json(body["task"], body) for body in app.declared()]
    assert back == app.definitions()


def test_several_schedules_and_what_lies_around_them_are_declared_and_chosen_by_the_id() -> None:
    app = App("shop")
    office = adjusted(
        Cron("H 9 * * *", "Europe/Berlin"),
        start="2026-01-01T00:00:00Z",
        end=datetime(2027, 1, 1, tzinfo=UTC),
        jitter=timedelta(minutes=5),
        calendar=Calendar(country="DE", weekdays_only=True, on_closed="next"),
    )
    app.task("a", name="a", schedule=[office, every("1h")])(lambda ctx: None)
    app.task("b", name="b", schedule=[Cron("H H * * *")])(lambda ctx: None)
    a, b = app.definitions()
    assert a.schedule == Several((office, Every(3600))).for_task("a")
    assert isinstance(office, Adjusted)
    assert office.needs_task
    assert b.schedule == Cron("H H * * *", task="b")
    assert [definition_from_json(body["task"], body) for body in app.declared()] == [a, b]
    wrong: Any
    for name, wrong, reason in (("c", [], "allowed: 1 to 32"), ("d", [Every(1), "x"], "number 2 is a str")):
        with pytest.raises(ScheduleError, match=reason):
            app.task(name, name=name, schedule=wrong)(lambda ctx: None)


def test_the_overlap_rule_follows_from_the_schedule_unless_it_is_given() -> None:
    app = App("shop")
    app.task("a", schedule=Every(60.0))(lambda ctx: None)
    app.task("b", name="b")(lambda ctx: None)
    app.task("c", name="c", schedule=Every(60.0), overlap=Overlap.SKIP)(lambda ctx: None)
    assert [item.overlap for item in app.definitions()] == [Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.SKIP]


def test_schedules_can_be_written_as_people_say_them() -> None:
    assert every("1h30m") == every(5400) == every(timedelta(minutes=90)) == Every(5400.0)
    assert every(60, anchor="1970-01-01T00:00:30Z") == Every(60.0, 30_000)
    assert at("1970-01-01T01:00:00+01:00") == at(datetime(1970, 1, 1, tzinfo=UTC)) == Once(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": ""}, "task: a task ID has at least one character"),
        ({"task": "a\nb"}, "no control characters"),
        (
            {"task": "x", "overlap": "maybe"},
            "overlap is 'maybe'; allowed: skip, buffer_one, buffer_all, cancel, terminate",
        ),
        ({"task": "x", "isolation": "none"}, "isolation is 'none'; allowed: shared, own"),
        ({"task": "x", "on_interruption": 1}, "allowed: retry, resume, skip"),
        ({"task": "x", "timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"task": "x", "schedule": "0 2 * * *"}, "schedule is a str; allowed: Cron, Every, Once"),
        ({"task": "x/*", "schedule": Every(60.0)}, "is a pattern, and a pattern has no schedule"),
        ({"task": "x", "nonsense": 1}, "unexpected keyword argument 'nonsense'"),
    ],
)
def test_a_bad_declaration_names_the_field(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AppError, match=message.replace("*", r"\*")):
        App("shop").task(**arguments)(print)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ScheduleError, match="at: the datetime has no time zone"):
        at(datetime(2026, 1, 1))


def test_a_task_or_function_declared_twice_is_refused() -> None:
    app = App("shop")
    app.task("a")(print)
    with pytest.raises(AppError, match="task 'a' is declared twice"):
        app.task("a", name="other")(repr)
    with pytest.raises(AppError, match="function 'print' is registered twice"):
        app.function("print")(repr)


def test_one_function_may_serve_several_tasks() -> None:
    app = App("shop")
    app.task("a")(print)
    app.task("b")(print)
    assert [item.handler for item in app.definitions()] == [app.definitions()[0].handler] * 2


def test_importing_an_app_loads_no_kafka_client_and_reads_no_settings(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from fencepost import App, Cron, Retry, RunContext\n"
        "app = App('shop')\n"
        "@app.task('report', schedule=Cron('0 2 * * *'), retry=Retry(attempts=5))\n"
        "def report(ctx: RunContext): ...\n"
    )
    code = (
        "import sys, shop; print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('confluent_kafka', 'jsonschema_rs', 'typer', 'rich') or m == 'fencepost.settings'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "from fencepost import App\napp = App('shop')\nclass Box:\n    inner = app\nno = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_wrong_http_request_is_named() -> None:
    with pytest.raises(AppError, match=r"handler\.url: is not a URL"):
        Http("api.example.com")
    with pytest.raises(AppError, match=r"handler\.colour: unknown field; allowed: kind, url, method"):
        Http("http://a", colour="red")


def test_no_task_of_an_app_is_a_shard() -> None:
    with pytest.raises(AppError, match="shard_of is written by the owner of a task"):
        App("shop").task("a/shard/0", shard_of="a")(print)
    with pytest.raises(AppError, match=r'map: .list. is no task it runs after; allowed: "payload"'):
        App("shop").task("a", map="list")(print)


def test_an_app_is_found_by_its_name(shop: str) -> None:
    assert load_app(f"{shop}:app").name == "shop"
    assert load_app(f"{shop}:Box.inner").name == "shop"


def test_an_app_that_is_not_there_is_named(shop: str) -> None:
    with pytest.raises(AppError, match="there is no module 'nowhere'"):
        load_app("nowhere:app")
    with pytest.raises(AppError, match=r"'gone' in .* is nothing; allowed: a fencepost\.App"):
        load_app(f"{shop}:gone")
    with pytest.raises(AppError, match="is a int; allowed"):
        load_app(f"{shop}:no")
    with pytest.raises(AppError, match="allowed: module:attribute"):
        load_app("shop")
