"""`next`: the next fire times, from the scheduler's own code."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from fencepost.cli.failures import BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import emit, say
from fencepost.cli.view import find_task
from fencepost.core.ids import check_task_id
from fencepost.core.schedule import Schedule, ScheduleError, schedule_from_json
from fencepost.core.schedule import upcoming as slots_of
from fencepost.core.times import format_ms_in, parse_rfc3339

_OPTIONS = {
    "cron": "--cron",
    "every_s": "--every",
    "at": "--at",
    "anchor": "--anchor",
    "time_zone": "--time-zone",
    "start": "--start",
    "end": "--end",
    "jitter_s": "--jitter",
    "calendar": "--on-closed",
    "country": "--country",
    "subdivision": "--subdivision",
    "on_closed": "--on-closed",
}


def upcoming(
    task_id: Annotated[str | None, typer.Argument(metavar="ID", help="A defined task; else give a schedule.")] = None,
    cron: Annotated[
        list[str] | None, typer.Option("--cron", help="Five to seven fields, such as '30 2 * * *'; may be repeated.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", help="A duration, such as 90s or 1h30m.")] = None,
    anchor: Annotated[str | None, typer.Option("--anchor", help="With --every: a time that is a slot.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="One time, RFC 3339 with offset.")] = None,
    time_zone: Annotated[str | None, typer.Option("--time-zone", help="Such as Europe/Berlin; UTC by default.")] = None,
    start: Annotated[str | None, typer.Option("--start", help="Only slots from this time on.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Only slots before this time.")] = None,
    jitter: Annotated[str | None, typer.Option("--jitter", help="Later by up to this; --id chooses.")] = None,
    country: Annotated[str | None, typer.Option("--country", help="Its holidays are closed days, such as DE.")] = None,
    subdivision: Annotated[str | None, typer.Option("--subdivision", help="Of the country, such as BY.")] = None,
    weekdays_only: Annotated[bool, typer.Option("--weekdays-only", help="Saturday and Sunday are closed.")] = False,
    on_closed: Annotated[str | None, typer.Option("--on-closed", help="skip, next or previous.")] = None,
    chooses: Annotated[str | None, typer.Option("--id", help="The task ID that chooses for H and --jitter.")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="After this time, RFC 3339; now by default.")] = None,
    count: Annotated[int, typer.Option("--count", help="How many, 1 to 10000.")] = 5,
    app: Annotated[str | None, typer.Option("--app", help="With ID: also know what this app declares.")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Show the next fire times of a task, or (without Kafka) of a schedule given here."""
    given = {"cron": cron or None, "every_s": every, "at": at}
    calendar = {
        "country": country,
        "subdivision": subdivision,
        "weekdays_only": weekdays_only or None,
        "on_closed": on_closed,
    }
    around = {"start": start, "end": end, "jitter_s": jitter, "calendar": _given(calendar) or None}
    if (task_id is None) == (not any(value is not None for value in given.values())):
        raise BadInput("ID, --cron, --every or --at: give exactly one of them")
    if task_id is not None and chooses is not None:
        raise BadInput("--id is for a schedule given here; a defined task has its own ID")
    if not 1 <= count <= 10_000:
        raise BadInput(f"--count is {count}; allowed: 1 to 10000")
    after_ms = time.time_ns() // 1_000_000 if from_ is None else _time("--from", from_)
    if task_id is not None:
        settings = load_settings(config, bootstrap, namespace, app=app)
        document = _of_task(settings, task_id, after_ms, count, time_zone)
    else:
        schedule = _schedule(_given(given), {**around, "anchor": anchor}, time_zone, chooses)
        document = {"next": _texts(slots_of(schedule, after_ms, count), _zone(schedule, time_zone))}
    if as_json:
        emit(document)
        return
    for line in document["next"]:
        say(line)
    if not document["next"]:
        say(f"none: {document.get('reason', 'no slot is left')}")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _schedule(given: dict[str, Any], more: dict[str, Any], time_zone: str | None, chooses: str | None) -> Schedule:
    """One schedule, or several where `--cron` was repeated."""
    crons = given.pop("cron", [])
    body: dict[str, Any] = {**given, **_given(more)}
    zone = {} if time_zone is None else {"time_zone": time_zone}
    try:
        schedule = schedule_from_json([{"cron": cron, **body, **zone} for cron in crons] or body)
        if chooses is None and schedule.needs_task:
            option = "--cron" if more["jitter_s"] is None else "--jitter"
            raise BadInput(f"{option}: the ID of the task chooses what it stands for; name it with --id")
        return schedule if chooses is None else schedule.for_task(_task_id(chooses))
    except ScheduleError as error:
        place, _, part = error.field.partition(".")
        option = _OPTIONS.get(part if place == "calendar" and part else place, "schedule")
        raise BadInput(f"{option}: {error.message}") from error


def _of_task(settings: Any, task_id: str, after_ms: int, count: int, time_zone: str | None) -> dict[str, Any]:
    task = find_task(settings, task_id)
    reason = task.why_no_slot()
    slots = [] if reason else task.slots(after_ms, count)
    schedule = None if task.definition is None else task.definition.schedule
    return {
        "task": task_id,
        "next": _texts(slots, _zone(schedule, time_zone)),
        **({} if slots else {"reason": reason or "no slot is left"}),
    }


def _zone(schedule: Schedule | None, time_zone: str | None) -> str:
    """The zone to show times in: the one asked for, else the schedule's own."""
    if time_zone is not None:
        return time_zone
    return "UTC" if schedule is None else schedule.zone


def _texts(slots: list[int], zone: str) -> list[str]:
    try:
        return [format_ms_in(slot_ms, zone) for slot_ms in slots]
    except ValueError as error:
        raise BadInput(f"--time-zone: {error}") from error


def _task_id(text: str) -> str:
    try:
        check_task_id(text)
    except ValueError as error:
        raise BadInput(f"--id: {error}") from error
    return text


def _time(option: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
