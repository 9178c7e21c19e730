"""The app: which functions run which tasks, and the way to trigger them from Python.

    app = App("shop")

    @app.task("report", schedule=Cron("0 2 * * *", time_zone="Europe/Berlin"), retry=Retry(attempts=5))
    def report(ctx: RunContext) -> None: ...

Making an app reads no settings and loads no Kafka client; both wait until something is sent. That matters: runners are
forked from a process that has imported the app, which should stay small, and a client does not survive a fork.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.core.fans import why_no_fan_out
from fencepost.core.graph import circle
from fencepost.core.ids import check_task_id
from fencepost.core.limits import Limit
from fencepost.core.links import MAX_PARENTS, MAX_SHARDS, When
from fencepost.core.schedule import (
    Adjusted,
    Calendar,
    Cron,
    Every,
    Once,
    Schedule,
    ScheduleError,
    Several,
    several,
)
from fencepost.core.task import (
    CatchUp,
    CommandHandler,
    Definition,
    Handler,
    HttpHandler,
    Isolation,
    OnHandover,
    OnInterruption,
    Overlap,
    PythonHandler,
    Retry,
    default_overlap,
)
from fencepost.core.times import parse_duration, parse_rfc3339

if TYPE_CHECKING:
    from fencepost.client import Client, Handle
    from fencepost.settings import Settings
    from fencepost.views.rule import Rule

__all__ = [
    "App",
    "AppError",
    "Calendar",
    "Command",
    "Cron",
    "Every",
    "Http",
    "Limit",
    "Once",
    "Retry",
    "adjusted",
    "at",
    "every",
    "load_app",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_E = TypeVar("_E", bound=StrEnum)
_PATTERN_SIGNS = "*?["
_CHOICES: Mapping[str, type[StrEnum]] = {
    "on_interruption": OnInterruption,
    "on_handover": OnHandover,
    "isolation": Isolation,
    "catch_up": CatchUp,
    "when": When,
}


class AppError(ValueError):
    """Something about an app is wrong: a task declared twice, a bad value, a module that cannot be imported."""


def Command(*argv: str, env: Mapping[str, str] | None = None, cwd: str | None = None) -> CommandHandler:
    """A command as a task's handler, for `App.command`. Never run through a shell."""
    if not argv:
        raise AppError("a command needs at least the path of an executable")
    return CommandHandler(tuple(argv), tuple(sorted((env or {}).items())), cwd)


def Http(url: str, *, method: str = "POST", **fields: Any) -> HttpHandler:
    """An HTTP request as a task's handler, for `App.http`. Raises AppError.

    fields: as in a definition's record (`headers`, `body`, `success`, `retry_statuses`, `timeout_s`, `redirects`).
    """
    from fencepost.codec import BadRecord
    from fencepost.wire.http_handler import checked_http

    try:
        return checked_http({"kind": "http", "url": url, "method": method, **fields})
    except BadRecord as bad:
        raise AppError(str(bad)) from bad


def every(interval: str | float | timedelta, anchor: str | datetime | None = None) -> Every:
    """`Every` from a duration such as "90s" or "1h30m" and, if wanted, a time that is a slot. Raises ScheduleError."""
    seconds = interval.total_seconds() if isinstance(interval, timedelta) else _seconds("every", interval)
    return Every(seconds) if anchor is None else Every(seconds, _at_ms("anchor", anchor))


def adjusted(
    schedule: Cron | Every | Once,
    *,
    start: str | datetime | None = None,
    end: str | datetime | None = None,
    jitter: str | float | timedelta = 0.0,
    calendar: Calendar | None = None,
) -> Adjusted:
    """A schedule from `start` on, before `end`, on the open days of a calendar, later by a time that the ID chooses.

    Raises ScheduleError.
    """
    jitter_s = jitter.total_seconds() if isinstance(jitter, timedelta) else _seconds("jitter", jitter)
    start_ms, end_ms = (None if time is None else _at_ms(name, time) for name, time in (("start", start), ("end", end)))
    return Adjusted(schedule, start_ms, end_ms, jitter_s, calendar)


def at(time: str | datetime) -> Once:
    """`Once` from an RFC 3339 time with offset, or a datetime with a zone. Raises ScheduleError."""
    return Once(_at_ms("at", time))


class App:
    """A set of functions and the tasks they run. `settings`: read from files and variables when first needed."""

    def __init__(self, name: str, settings: Settings | None = None) -> None:
        self.name = name
        self._settings = settings
        self._functions: dict[str, Callable[..., Any]] = {}
        self._definitions: dict[str, Definition] = {}
        self._rules: dict[str, Rule] = {}
        self._client: tuple[int, Client] | None = None

    # --- declaring ---------------------------------------------------------------------------------------------------

    def task(
        self,
        task: str,
        *,
        schedule: Schedule | Sequence[Cron | Every | Once | Adjusted] | None = None,
        retry: Retry | None = None,
        timeout: str | float | None = None,
        overlap: Overlap | str | None = None,
        on_interruption: OnInterruption | str = OnInterruption.RETRY,
        on_handover: OnHandover | str = OnHandover.FINISH,
        isolation: Isolation | str = Isolation.SHARED,
        name: str | None = None,
        **more: Any,
    ) -> Callable[[_F], _F]:
        """Declare the function below as what runs `task`: an ID, or a pattern such as ``invoice/*``.

        schedule: one, or a list of several.
        timeout: seconds, or a duration such as "5m". overlap: skip, buffer_one (default with a schedule), buffer_all
        (default without), cancel, terminate, batch. on_interruption: retry, resume, skip. on_handover: finish, stop.
        isolation: shared, own. name: what task files call the function; by default its own name. more: other fields
        of a definition (`lease_ttl_s`, `grace_s`, `settle_s`, `max_losses`, `catch_up`, `catch_up_s`, `priority`,
        `payload`, `buffer_limit`, `batch_limit`, `strict_stop`, `paused`, `description`, `start_timeout_s`,
        `heartbeat_s`, `total_timeout_s`, `after`, `when`, `propagate_failure`, `shards`, `map`,
        `chunk`, `broadcast`). Raises AppError.
        """

        def declare(function: _F) -> _F:
            registered = self.function(name)(function)
            self._declare(
                _definition(
                    task,
                    PythonHandler(name or function.__name__),
                    schedule=schedule,
                    retry=retry or Retry(),
                    timeout_s=None if timeout is None else _seconds("timeout", timeout),
                    overlap=overlap,
                    on_interruption=_chosen(OnInterruption, "on_interruption", on_interruption),
                    on_handover=_chosen(OnHandover, "on_handover", on_handover),
                    isolation=_chosen(Isolation, "isolation", isolation),
                    **more,
                )
            )
            return registered

        return declare

    def command(self, task: str, handler: CommandHandler | HttpHandler, **fields: Any) -> None:
        """Declare a command as what runs `task`; fields as for `task`. Commands have a process of their own."""
        timeout = fields.pop("timeout", None)
        fields["timeout_s"] = None if timeout is None else _seconds("timeout", timeout)
        fields.setdefault("isolation", Isolation.OWN)
        for key, kind in _CHOICES.items():
            if key in fields:
                fields[key] = _chosen(kind, key, fields[key])
        self._declare(_definition(task, handler, **fields))

    def http(self, task: str, handler: HttpHandler, **fields: Any) -> None:
        """Declare an HTTP request as what runs `task`; fields as for `task`. One process makes many at a time."""
        self.command(task, handler, isolation=fields.pop("isolation", Isolation.SHARED), **fields)

    def function(self, name: str | None = None) -> Callable[[_F], _F]:
        """Make the function below known by a name, for tasks that are defined in files. Raises AppError."""

        def register(function: _F) -> _F:
            known = name or function.__name__
            if self._functions.setdefault(known, function) is not function:
                raise AppError(
                    f"function {known!r} is registered twice in app {self.name!r}; give one a name of its own"
                )
            return function

        return register

    def rule(self, topic: str, *, name: str | None = None) -> Callable[[_F], _F]:
        """Declare the function below as a rule: for each record of `topic` it gives the triggers to send.

        It gets a `SourceRecord` (`key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp`) and yields or
        returns `fencepost.Trigger`s or task IDs, or nothing. It runs in the process of `fencepost rules`. name: goes
        into the deduplication IDs; by default the function's own. Raises AppError.
        """
        from fencepost.views.rule import Rule

        def declare(function: _F) -> _F:
            try:
                rule = Rule(name or function.__name__, topic, function)
            except ValueError as error:
                raise AppError(str(error)) from error
            if rule.name in self._rules:
                raise AppError(f"rule {rule.name!r} is declared twice in app {self.name!r}")
            self._rules[rule.name] = rule
            return function

        return declare

    def rules(self) -> list[Rule]:
        """The rules that are declared here."""
        return list(self._rules.values())

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """The functions by name."""
        return dict(self._functions)

    def definitions(self) -> list[Definition]:
        """What is declared here, patterns included."""
        return list(self._definitions.values())

    def declared(self) -> list[dict[str, Any]]:
        """The definitions as JSON objects, each with its ``task``."""
        from fencepost.wire.definition import definition_to_json

        return [definition_to_json(item) for item in self._definitions.values()]

    # --- sending -----------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Raises SettingsError when they are read for the first time and something is wrong."""
        if self._settings is None:
            from fencepost.settings import Settings

            self._settings = Settings.load()
        return self._settings

    @property
    def client(self) -> Client:
        """The client of this process; a forked one gets its own."""
        if self._client is None or self._client[0] != os.getpid():
            from fencepost.client import Client

            self._client = (os.getpid(), Client(self.settings))
        return self._client[1]

    def trigger(
        self,
        task: str,
        payload: Any = None,
        *,
        delay: str | float | timedelta | None = None,
        run_at: str | datetime | None = None,
        id: str | None = None,
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
        cycle: str | None = None,
    ) -> Handle:
        """Ask for a run. See `Client.trigger`."""
        return self.client.trigger(
            task, payload, delay=delay, run_at=run_at, id=id, priority=priority, headers=headers, cycle=cycle
        )

    def cancel(self, task: str, reason: str | None = None, *, waiting: bool = True) -> None:
        """End the run that is on, and what waits unless `waiting` is False."""
        self.client.cancel(task, reason, waiting=waiting)

    def pause(self, task: str, reason: str | None = None, *, on_resume: str | None = None) -> None:
        """Hold back every start of the task. on_resume: miss, latest or all of the slots of the pause; see `Client`."""
        self.client.pause(task, reason, on_resume=on_resume)

    def resume(self, task: str) -> None:
        """Let the task start again."""
        self.client.resume(task)

    def rerun(
        self,
        task: str,
        epoch: int | None = None,
        *,
        slot: str | datetime | None = None,
        payload: Any = ...,
        id: str | None = None,
        priority: int | None = None,
    ) -> Handle:
        """Run a past run again, or a slot. payload: another one than it had. See `Client.rerun`."""
        given = {} if payload is ... else {"payload": payload}
        return self.client.rerun(task, epoch, slot=slot, id=id, priority=priority, **given)

    def backfill(
        self,
        task: str,
        since: str | datetime,
        until: str | datetime,
        *,
        again: bool = False,
        id: str | None = None,
        max_runs: int = 1,
    ) -> None:
        """Have the slots of a past range run, `max_runs` at once. See `Client.backfill`."""
        self.client.backfill(task, since, until, again=again, id=id, max_runs=max_runs)

    def delete(self, task: str) -> None:
        """Take the task's own definition away."""
        self.client.delete(task)

    def apply(self, definitions: Iterable[Definition] | None = None) -> None:
        """Publish definitions to the tasks topic; by default those declared here (patterns cannot be published)."""
        self.client.apply(self._publishable() if definitions is None else definitions)

    def _publishable(self) -> list[Definition]:
        return [item for item in self._definitions.values() if not _is_pattern(item.task)]

    def _declare(self, definition: Definition) -> None:
        if definition.task in self._definitions:
            raise AppError(f"task {definition.task!r} is declared twice in app {self.name!r}")
        if definition.after:
            after = {task: known.after for task, known in self._definitions.items()}
            way = circle(after | {definition.task: definition.after})
            if way is not None:
                raise AppError(f"after: the tasks would run after one another in a circle: {' -> '.join(way)}")
        self._definitions[definition.task] = definition

    def __repr__(self) -> str:
        return f"App({self.name!r}, {len(self._definitions)} tasks)"


def load_app(reference: str) -> App:
    """The app that ``module:attribute`` names. The working directory is searched first. Raises AppError."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise AppError(f"app is {reference!r}; allowed: module:attribute, for example shop:app")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AppError(f"app {reference!r}: there is no module {error.name!r} in {os.getcwd()}") from error
        raise
    app: Any = module
    for name in attribute.split("."):
        app = getattr(app, name, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else f"a {type(app).__name__}"
        raise AppError(f"app {reference!r}: {attribute!r} in {module_name} is {found}; allowed: a fencepost.App")
    return app


def _definition(task: str, handler: Handler, *, overlap: Overlap | str | None = None, **fields: Any) -> Definition:
    try:
        check_task_id(task)
    except ValueError as error:
        raise AppError(f"task: {error}") from error
    schedule = fields.get("schedule")
    if isinstance(schedule, list | tuple):
        schedule = several(schedule)
    if schedule is not None and not isinstance(schedule, Cron | Every | Once | Adjusted | Several):
        raise AppError(f"task {task!r}: schedule is a {type(schedule).__name__}; allowed: Cron, Every, Once")
    if schedule is not None and _is_pattern(task):
        raise AppError(f"task {task!r} is a pattern, and a pattern has no schedule: give each ID its own task")
    if schedule is not None:
        fields["schedule"] = schedule.for_task(task)
    fields["after"] = _parents(task, fields.get("after", ()))
    if "shard_of" in fields:
        raise AppError(f"task {task!r}: shard_of is written by the owner of a task for its shards alone; leave it out")
    _check_fan_out(task, fields)
    if "when" in fields:
        fields["when"] = _chosen(When, "when", fields["when"])
    if "catch_up" in fields:
        fields["catch_up"] = _chosen(CatchUp, "catch_up", fields["catch_up"])
    if overlap is None:
        overlap = default_overlap(schedule)
    try:
        made = Definition(task, handler, overlap=_chosen(Overlap, "overlap", overlap), **fields)
        why_not = why_no_fan_out(made) if made.fans_out else None
        if why_not is not None:
            raise AppError(f"task {task!r}: {why_not[0]}: {why_not[1]}")
        return made
    except TypeError as error:
        raise AppError(f"task {task!r}: {str(error).replace('Definition.__init__() ', '')}") from error


def _parents(task: str, after: str | Iterable[str]) -> tuple[str, ...]:
    """The IDs that a task runs after. Raises AppError."""
    parents = (after,) if isinstance(after, str) else tuple(after)
    if parents and _is_pattern(task):
        raise AppError(f"task {task!r} is a pattern, and a pattern runs after nothing: give each ID its own task")
    for parent in parents:
        try:
            check_task_id(parent)
        except ValueError as error:
            raise AppError(f"task {task!r}: after: {error}") from error
        if _is_pattern(parent):
            raise AppError(f"task {task!r}: after: {parent!r} is a pattern; name the IDs")
    if len(set(parents)) != len(parents) or len(parents) > MAX_PARENTS:
        raise AppError(f"task {task!r}: after: allowed: at most {MAX_PARENTS} IDs, each once")
    return parents


def _check_fan_out(task: str, fields: Mapping[str, Any]) -> None:
    """Raises AppError."""
    for name, most in (("shards", MAX_SHARDS), ("chunk", 10_000)):
        value = fields.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise AppError(f"task {task!r}: {name} is {value!r}; allowed: 1 to {most}")
    if not isinstance(fields.get("broadcast", False), bool):
        raise AppError(f"task {task!r}: broadcast is {fields['broadcast']!r}; allowed: True, False")
    if _is_pattern(task) and ("shards" in fields or "map" in fields or fields.get("broadcast")):
        raise AppError(f"task {task!r} is a pattern, and a pattern has no shards: give each ID its own task")


def _is_pattern(task: str) -> bool:
    return any(sign in task for sign in _PATTERN_SIGNS)


def _chosen(kind: type[_E], field: str, value: _E | str) -> _E:
    try:
        return kind(value)
    except ValueError:
        raise AppError(f"{field} is {value!r}; allowed: {', '.join(item.value for item in kind)}") from None


def _seconds(field: str, value: str | float) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise AppError(f"{field}: {error}") from error


def _at_ms(field: str, value: str | datetime) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ScheduleError(field, "the datetime has no time zone")
        return round(value.timestamp() * 1000)
    try:
        return parse_rfc3339(value)
    except ValueError as error:
        raise ScheduleError(field, str(error)) from error
