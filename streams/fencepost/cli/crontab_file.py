"""A crontab as cronie reads it: the entries, and what each of its lines says that a task cannot.

Both forms are read: a user's, and that of the system, which names a user before the command. Settings hold for the
entries below them. In a command the first `%` begins what it gets on standard input, further ones are line breaks
there, and `\\%` is the sign itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_SETTING = re.compile(r"\s*(?P<quote>[\"']?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)\s*=\s*(?P<value>.*?)\s*")
_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<value>.*)(?P=quote)")
_RANDOM = re.compile(r"(?P<first>[0-9A-Za-z]*)~(?P<end>[0-9A-Za-z]*)(?P<step>/[0-9]+)?")
_LIMITS: Final = (("0", "59"), ("0", "23"), ("1", "28"), ("1", "12"), ("0", "6"))
_NOT_PASSED_ON: Final = ("SHELL", "CRON_TZ", "MAILTO", "MAILFROM", "RANDOM_DELAY", "CONTENT_TYPE", "LOGNAME", "USER")
_NO_MAIL = "nobody is sent mail: what a run prints is shown by `fencepost logs ID`"


@dataclass(frozen=True, slots=True)
class Remark:
    """What is to be said of a line. `left_out`: what it asks for is in no task."""

    line: int
    text: str
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `stdin`: what the command gets on standard input; None: nothing. `comment`: the lines right above."""

    line: int
    text: str
    expression: str
    command: str
    stdin: str | None
    user: str | None
    shell: str
    time_zone: str
    env: tuple[tuple[str, str], ...]
    delay_min: int
    comment: str


@dataclass(slots=True)
class _Settings:
    """What the lines so far have set."""

    time_zone: str
    shell: str = "/bin/sh"
    delay_min: int = 0
    env: dict[str, str] = field(default_factory=dict)


def read_crontab(text: str, system: bool, time_zone: str) -> tuple[list[Entry], list[Remark]]:
    """The entries, and what is to be said, both in the order of the lines. `time_zone`: where no line names another."""
    settings = _Settings(time_zone)
    entries: list[Entry] = []
    remarks: list[Remark] = []
    comment: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.lstrip("#").strip())
            continue
        if stripped and (match := _SETTING.fullmatch(line)):
            remarks += _set(settings, number, match["name"], _unquoted(match["value"]))
        elif stripped:
            entry, said = _entry(settings, number, stripped, system, " ".join(filter(None, comment)))
            entries += [entry] if entry is not None else []
            remarks += said
        comment = []
    return entries, remarks


def may_be_the_systems(text: str, users: set[str]) -> bool:
    """Whether every entry has a user's name where a user's crontab has the command."""
    entries, _ = read_crontab(text, False, "UTC")
    return bool(entries) and all(
        len(words := entry.command.split(None, 1)) == 2 and words[0] in users for entry in entries
    )


def _set(settings: _Settings, line: int, name: str, value: str) -> list[Remark]:
    if name == "SHELL":
        settings.shell = value
    elif name == "CRON_TZ":
        settings.time_zone = value
    elif name == "RANDOM_DELAY":
        if not (value.isdecimal() and len(value) <= 4):
            return [Remark(line, f"RANDOM_DELAY is {value!r}, which is no number of minutes: no delay is set", True)]
        settings.delay_min = int(value)
        return [Remark(line, "RANDOM_DELAY became jitter: the task's ID chooses the delay, once and for all its runs")]
    elif name == "MAILTO":
        return [Remark(line, f"MAILTO: {_NO_MAIL}")] if value else []
    elif name in _NOT_PASSED_ON:
        return [Remark(line, f"{name} has no counterpart and is left out")]
    else:
        settings.env[name] = value
        if name == "TZ":
            return [Remark(line, "TZ is passed to the commands; it does not move their times, as in cronie")]
    return []


def _entry(settings: _Settings, line: int, text: str, system: bool, comment: str) -> tuple[Entry | None, list[Remark]]:
    remarks = []
    if text.startswith("-"):
        text = text[1:].lstrip()
        remarks.append(Remark(line, "a - before the minute (no line in the system's log) has no counterpart"))
    words = text.split(None, 1 if text.startswith("@") else 5)
    times = 1 if text.startswith("@") else 5
    if len(words) <= times:
        return None, [Remark(line, "is no setting and no entry: a time and a command are expected", True)]
    fields, rest = words[:times], words[times]
    if fields[0].lower() == "@reboot":
        return None, [
            Remark(line, "@reboot has no counterpart: no machine is a task's own; use the machine's init", True)
        ]
    user = None
    if system:
        user, rest = (*rest.split(None, 1), "")[:2]
        if not rest:
            return None, [Remark(line, "has no command after the user; is it a user's crontab? (--form user)", True)]
        remarks.append(Remark(line, f"runs as the worker's user, not as {user!r}"))
    if any("~" in one for one in fields):
        fields = [_random(place, one) for place, one in enumerate(fields)]
        remarks.append(Remark(line, "~ became H: the task's ID chooses the time, once and for all"))
    command, stdin = _split_input(rest)
    env = tuple(sorted(settings.env.items()))
    expression = " ".join(fields)
    entry = Entry(
        line,
        text,
        expression,
        command,
        stdin,
        user,
        settings.shell,
        settings.time_zone,
        env,
        settings.delay_min,
        comment,
    )
    return entry, remarks


def _random(place: int, text: str) -> str:
    def hashed(match: re.Match[str]) -> str:
        low, high = _LIMITS[place]
        return f"H({match['first'] or low}-{match['end'] or high}){match['step'] or ''}"

    return ",".join(_RANDOM.sub(hashed, item) for item in text.split(","))


def _split_input(text: str) -> tuple[str, str | None]:
    """The command, and its input where there is an unescaped `%`."""
    parts, part = [], ""
    at = 0
    while at < len(text):
        if text.startswith("\\%", at):
            part, at = part + "%", at + 2
        elif text[at] == "%":
            parts.append(part)
            part, at = "", at + 1
        else:
            part, at = part + text[at], at + 1
    parts.append(part)
    return parts[0].strip(), "\n".join(parts[1:]) + "\n" if len(parts) > 1 else None


def _unquoted(value: str) -> str:
    match = _QUOTED.fullmatch(value)
    return match["value"] if match else value
