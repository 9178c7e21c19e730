"""Rule files: `[[rule]]` tables in TOML.

[[rule]]
name = "big-order"
topic = "orders"
match = { "value.kind" = "created", "value.total" = { at_least = 100 } }
task = "invoice/{value.id}"
payload = { total = "{value.total}" }
delay = "10s"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fencepost.core.ids import check_task_id
from fencepost.core.times import parse_duration, parse_rfc3339
from fencepost.views.condition import parse_conditions
from fencepost.views.rule import Declared, Rule
from fencepost.views.template import Template, parse_template, parse_tree

_T = TypeVar("_T")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_KEYS = ("name", "topic", "task", "match", "payload", "delay", "run_at", "priority", "headers")


class BadRule(ValueError):
    """A rule that cannot be. The message names file, rule and field, and what is allowed."""


def read_rule_files(paths: list[Path]) -> list[Rule]:
    """All rules of the files. Raises BadRule."""
    return [rule for path in paths for rule in _read(path)]


def check_names(rules: list[Rule]) -> list[Rule]:
    """The rules, if no two have one name. Raises BadRule."""
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            raise BadRule(f"rule {rule.name!r} is there twice; give each a name of its own")
        seen.add(rule.name)
    return rules


def _read(path: Path) -> list[Rule]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRule(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRule(f"{path} is not valid TOML: {error}") from error
    unknown = sorted(set(document) - {"rule"})
    tables = document.get("rule", [])
    if unknown or not isinstance(tables, list):
        raise BadRule(f"{path}: {unknown[0] if unknown else 'rule'!r}; allowed: [[rule]] tables")
    return [_rule(f"{path}: rule {number}", table) for number, table in enumerate(tables, start=1)]


def _rule(place: str, table: Any) -> Rule:
    if not isinstance(table, Mapping):
        raise BadRule(f"{place} is not a table; write [[rule]]")
    if isinstance(name := table.get("name"), str):
        place = f"{place} ({name[:100]!r})"
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise BadRule(f"{place}: unknown key {unknown[0]!r}; allowed: {', '.join(_KEYS)}")
    for key in ("name", "topic", "task"):
        if not isinstance(table.get(key), str):
            raise BadRule(f"{place}: {key} is {table.get(key)!r}; allowed: a text")
    if "delay" in table and "run_at" in table:
        raise BadRule(f"{place}: run_at and delay exclude each other; give one of them")
    declared = Declared(
        task=_field(place, "task", lambda: _checked(parse_template(table["task"]), check_task_id)),
        match=_field(place, "match", lambda: parse_conditions(_table(table.get("match", {})))),
        payload=_field(place, "payload", lambda: parse_tree(table["payload"]) if "payload" in table else None),
        delay=_field(place, "delay", lambda: _time(table.get("delay"), parse_duration)),
        run_at=_field(place, "run_at", lambda: _time(table.get("run_at"), parse_rfc3339)),
        priority=_field(place, "priority", lambda: _priority(table.get("priority"))),
        headers=_field(place, "headers", lambda: _headers(_table(table.get("headers", {})))),
    )
    if not _TOPIC.fullmatch(table["topic"]):
        raise BadRule(f"{place}: topic is {table['topic'][:100]!r}; allowed: 1 to 249 letters, digits, '.', '_' or '-'")
    return _field(place, "name", lambda: Rule(table["name"], table["topic"], declared))


def _field(place: str, name: str, make: Callable[[], _T]) -> _T:
    try:
        return make()
    except ValueError as error:
        raise BadRule(f"{place}: {name}: {error}") from error


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"is {value!r}; allowed: a table")
    return value


def _checked(template: Template, check: Callable[[str], object]) -> Template:
    """A text without placeholders is checked now; others when they are filled."""
    if template.constant is not None:
        check(template.constant)
    return template


def _time(value: Any, check: Callable[[str], object]) -> Template | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        value = value.isoformat() if hasattr(value, "isoformat") else value
        if not isinstance(value, str):
            raise ValueError(f"is {value!r}; allowed: a text")
    return _checked(parse_template(str(value)), check)


def _priority(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 9):
        raise ValueError(f"is {value!r}; allowed: a whole number from 0 to 9")
    return value


def _headers(table: Mapping[str, Any]) -> dict[str, Template]:
    for name, value in table.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}; allowed: a text")
    return {name: parse_template(value) for name, value in table.items()}
