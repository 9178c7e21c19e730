"""Conditions on a part of a record. What is missing matches nothing but ``exists = false``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.views.record import MISSING, Path, SourceRecord, parse_path


@dataclass(frozen=True, slots=True)
class Condition:
    """`operator` is a key of OPERATORS."""

    path: Path
    operator: str
    wanted: Any

    def holds(self, record: SourceRecord) -> bool:
        """Raises BadRecord where the part cannot be read: a value that is not JSON, a key that is not UTF-8."""
        found = self.path.find(record)
        if self.operator == "exists":
            return (found is not MISSING) is self.wanted
        return found is not MISSING and OPERATORS[self.operator].holds(found, self.wanted)


@dataclass(frozen=True, slots=True)
class _Operator:
    takes: str
    accepts: Callable[[Any], bool]
    holds: Callable[[Any, Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _same(found: Any, wanted: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(item, wanted[name]) for name, item in found.items())
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    return bool(found == wanted)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Numbers with numbers, texts with texts; others have no order."""

    def holds(found: Any, wanted: Any) -> bool:
        comparable = (_is_number(found) and _is_number(wanted)) or (_is_text(found) and _is_text(wanted))
        return comparable and compare(found, wanted)

    return holds


def _number_or_text(value: Any) -> bool:
    return _is_number(value) or _is_text(value)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, str):
        return isinstance(wanted, str) and wanted in found
    return isinstance(found, list) and any(_same(item, wanted) for item in found)


OPERATORS: Final[Mapping[str, _Operator]] = {
    "equals": _Operator("any value", lambda value: True, _same),
    "not_equals": _Operator("any value", lambda value: True, lambda found, wanted: not _same(found, wanted)),
    "in": _Operator("a list", _is_list, lambda found, wanted: any(_same(found, item) for item in wanted)),
    "not_in": _Operator("a list", _is_list, lambda found, wanted: not any(_same(found, item) for item in wanted)),
    "above": _Operator("a number or a text", _number_or_text, _ordered(lambda found, wanted: found > wanted)),
    "at_least": _Operator("a number or a text", _number_or_text, _ordered(lambda found, wanted: found >= wanted)),
    "below": _Operator("a number or a text", _number_or_text, _ordered(lambda found, wanted: found < wanted)),
    "at_most": _Operator("a number or a text", _number_or_text, _ordered(lambda found, wanted: found <= wanted)),
    "starts_with": _Operator("a text", _is_text, lambda found, wanted: _is_text(found) and found.startswith(wanted)),
    "ends_with": _Operator("a text", _is_text, lambda found, wanted: _is_text(found) and found.endswith(wanted)),
    "contains": _Operator("any value", lambda value: True, _contains),
    "exists": _Operator("true or false", lambda value: isinstance(value, bool), lambda found, wanted: True),
}


def parse_conditions(table: Mapping[str, Any]) -> tuple[Condition, ...]:
    """From ``{"value.kind" = "created", "value.total" = {at_least = 100}}``. Raises ValueError."""
    return tuple(condition for name, given in table.items() for condition in _conditions(name, given))


def _conditions(name: str, given: Any) -> list[Condition]:
    path = parse_path(name)
    if not isinstance(given, Mapping):
        return [Condition(path, "equals", given)]
    if not given:
        raise ValueError(f"{name!r} has no condition; allowed: a value, or {_allowed()}")
    found = []
    for operator, wanted in given.items():
        known = OPERATORS.get(operator)
        if known is None:
            raise ValueError(f"{name!r} has the condition {operator!r}; allowed: {_allowed()}")
        if not known.accepts(wanted):
            raise ValueError(f"{name!r}: {operator} takes {known.takes}, not {wanted!r}")
        found.append(Condition(path, operator, wanted))
    return found


def _allowed() -> str:
    return ", ".join(OPERATORS)
