"""`import crontab`: tasks for `fencepost apply` out of a crontab."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.cli.crontab_file import Entry, Remark, may_be_the_systems, read_crontab
from fencepost.cli.failures import FAILURE, BadInput
from fencepost.cli.options import Json
from fencepost.cli.output import emit, note, printable, say
from fencepost.codec import BadRecord, dumps
from fencepost.core.ids import check_task_id
from fencepost.core.schedule.zone_clock import zone_clock
from fencepost.wire.definition import definition_from_json

group = typer.Typer(help="Bring over what other schedulers have: crontab.", no_args_is_help=True)

# Those that take `exec </dev/null` and a here-document as the standard says.
_POSIX_SHELLS: Final = {"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"}
_END_OF_INPUT: Final = "END_OF_INPUT"
_SYSTEMS = ("/etc/crontab", "/etc/cron.d")
_DESCRIPTION_CHARS: Final = 1024


class Form(StrEnum):
    """Which kind of crontab."""

    AUTO = "auto"
    USER = "user"
    SYSTEM = "system"


@group.command("crontab")
def crontab(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A crontab; - for standard input, as from `crontab -l`.")],
    form: Annotated[Form, typer.Option("--form", help="system: a user stands before each command.")] = Form.AUTO,
    time_zone: Annotated[str | None, typer.Option("--time-zone", help="Of its times; else this machine's.")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Of the tasks' IDs.")] = "cron/",
    as_json: Json = False,
) -> None:
    """Write a task file for `fencepost apply` from a crontab, and say line by line what could not be carried over."""
    text = _read(file)
    system = _is_systems(file, text, form)
    zone = _zone(time_zone)
    entries, remarks = read_crontab(text, system, zone)
    tasks, refused = _tasks(entries, _prefix(prefix))
    remarks = sorted([*remarks, *refused, *_about_shells(entries)], key=lambda remark: remark.line)
    if as_json:
        emit({"tasks": tasks, "remarks": [_document(remark) for remark in remarks]})
    else:
        _write(tasks, entries, "standard input" if file == "-" else file)
    _tell("-" if file == "-" else Path(file).name, remarks, tasks, zone if time_zone is None else None)
    if any(remark.left_out for remark in remarks):
        raise typer.Exit(FAILURE)


def _tasks(entries: Iterable[Entry], prefix: str) -> tuple[list[dict[str, Any]], list[Remark]]:
    """The tasks as tables of a task file, each with the `line` it comes from, and what cannot be one."""
    tasks: list[dict[str, Any]] = []
    refused: list[Remark] = []
    used: set[str] = set()
    for entry in entries:
        task_id = _task_id(entry, prefix, used)
        table = _table(entry, task_id)
        try:
            definition_from_json(task_id, _record(table))
        except BadRecord as error:
            refused.append(Remark(entry.line, str(error).removeprefix("schedule."), True))
            continue
        used.add(task_id)
        tasks.append(table)
    return tasks, refused


def _table(entry: Entry, task_id: str) -> dict[str, Any]:
    handler: dict[str, Any] = {"kind": "command", "argv": [entry.shell, "-c", _script(entry)]}
    if entry.env:
        handler["env"] = dict(entry.env)
    table: dict[str, Any] = {"line": entry.line, "id": task_id}
    if entry.comment:
        table["description"] = entry.comment[:_DESCRIPTION_CHARS]
    table |= {"handler": handler, "cron": entry.expression, "time_zone": entry.time_zone}
    return table | ({"jitter": f"{entry.delay_min}m"} if entry.delay_min else {})


def _script(entry: Entry) -> str:
    """The command with the input that cron would give it: a task's command finds its payload there."""
    if Path(entry.shell).name not in _POSIX_SHELLS:
        return entry.command
    if entry.stdin is None:
        return f"exec </dev/null; {entry.command}"
    end = _END_OF_INPUT
    while end in entry.stdin:
        end += "_"
    return f"{{ {entry.command}\n}} <<'{end}'\n{entry.stdin}{end}\n"


def _about_shells(entries: Iterable[Entry]) -> list[Remark]:
    """Once for each shell: that workers must allow it, and what it cannot be given."""
    remarks = []
    for shell, entry in {entry.shell: entry for entry in reversed(list(entries))}.items():
        remarks.append(Remark(entry.line, f"the worker must allow the shell: fencepost worker --allow {shell}"))
        if Path(shell).name not in _POSIX_SHELLS:
            remarks.append(Remark(entry.line, f"commands of {shell} find the task's payload on standard input"))
    return remarks + [
        Remark(entry.line, f"the input after % cannot be given to a command of {entry.shell}", True)
        for entry in entries
        if entry.stdin is not None and Path(entry.shell).name not in _POSIX_SHELLS
    ]


def _record(table: dict[str, Any]) -> dict[str, Any]:
    """The table as the object of a definition record."""
    schedule = {name: table[name] for name in ("cron", "time_zone")}
    if "jitter" in table:
        schedule["jitter_s"] = table["jitter"]
    body = {"handler": table["handler"], "schedule": schedule}
    return body | ({"description": table["description"]} if "description" in table else {})


def _task_id(entry: Entry, prefix: str, used: set[str]) -> str:
    """The prefix and the name of the program: the first path in the command, else its first word."""
    words = [word.strip("\"'`();&|{}") for word in entry.command.split()]
    words = [word for word in words if word and "=" not in word and not word.startswith(("-", ">", "<", "/dev/"))]
    path = next((word for word in words if "/" in word.rstrip("/")), words[0] if words else "job")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.rstrip("/").rpartition("/")[2]).strip("-.") or "job"
    task_id, number = f"{prefix}{name[:100]}", 1
    while task_id in used:
        number += 1
        task_id = f"{prefix}{name[:100]}-{number}"
    return task_id


# --- what is read ----------------------------------------------------------------------------------------------------


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode()
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not text in UTF-8: {error}") from error


def _is_systems(file: str, text: str, form: Form) -> bool:
    if form is not Form.AUTO:
        return form is Form.SYSTEM
    if file != "-" and str(Path(file).resolve()).startswith(_SYSTEMS):
        return True
    if may_be_the_systems(text, {entry.pw_name for entry in pwd.getpwall()}):
        raise BadInput(f"{file} may be the system's, with a user before each command: say --form system or --form user")
    return False


def _zone(given: str | None) -> str:
    zone = given if given is not None else _machines_zone()
    zone_clock(zone)  # refuses what is not known
    return zone


def _machines_zone() -> str:
    """The zone this machine's cron goes by, as far as it has a name."""
    named = os.environ.get("TZ", "").removeprefix(":")
    link = os.path.realpath("/etc/localtime")
    found = named or (link.partition("/zoneinfo/")[2] if "/zoneinfo/" in link else "")
    try:
        zone_clock(found)
    except ValueError:
        return "UTC"
    return found


def _prefix(text: str) -> str:
    try:
        check_task_id(f"{text}x")
    except ValueError as error:
        raise BadInput(f"--prefix: {error}") from error
    return text


# --- what is shown ---------------------------------------------------------------------------------------------------


def _write(tasks: list[dict[str, Any]], entries: list[Entry], source: str) -> None:
    lines = {entry.line: entry.text for entry in entries}
    say(f"# From {printable(source)}. One task never runs twice at once: an entry that comes due meanwhile waits.")
    for task in tasks:
        say(f"\n# {task['line']}: {printable(lines[task['line']])}\n[[task]]")
        for name, value in task.items():
            if name != "line":
                say(f"{name} = {_toml(value)}")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return dumps(value).decode().replace("\x7f", "\\u007f")  # a JSON text is a TOML text but for this sign


def _tell(name: str, remarks: list[Remark], tasks: list[dict[str, Any]], assumed_zone: str | None) -> None:
    if assumed_zone is not None:
        note(
            f"{name}: times without CRON_TZ are taken in {assumed_zone}, this machine's zone; --time-zone names another"
        )
    for remark in remarks:
        note(f"{name}:{remark.line}: {'NOT CARRIED OVER: ' if remark.left_out else ''}{printable(remark.text)}")
    lost = sum(remark.left_out for remark in remarks)
    note(f"{name}: {len(tasks)} task{'' if len(tasks) == 1 else 's'}; {lost} not carried over")


def _document(remark: Remark) -> dict[str, Any]:
    return {"line": remark.line, "text": remark.text, "left_out": remark.left_out}
