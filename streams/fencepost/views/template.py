"""Templates: text with ``{value.order.id}`` in it, filled from a record. Names are looked up, nothing is evaluated.

A text that is one placeholder and nothing else stands for the value itself, whatever its kind. Within more text only
texts, numbers and booleans can stand. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.codec import BadRecord, dumps
from fencepost.views.record import MISSING, Path, SourceRecord, parse_path

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed text: literals and paths in turn."""

    parts: tuple[str | Path, ...]

    @property
    def constant(self) -> str | None:
        """The text, where nothing of a record stands in it."""
        return None if any(isinstance(part, Path) for part in self.parts) else "".join(map(str, self.parts))

    def value(self, record: SourceRecord, field: str) -> Any:
        """What it stands for. Raises BadRecord naming the field where the record lacks what it names."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Path):
            return _found(self.parts[0], record, field)
        return self.text(record, field)

    def text(self, record: SourceRecord, field: str) -> str:
        """As text. Raises BadRecord, also for a value that cannot stand within a text."""
        return "".join(part if isinstance(part, str) else _shown(part, record, field) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Tree:
    """A payload whose texts are templates; tables and lists keep their form, other values are as they are."""

    node: Any

    def value(self, record: SourceRecord, field: str) -> Any:
        return _filled(self.node, record, field)


def parse_template(text: str) -> Template:
    """Raises ValueError naming the placeholder and what is allowed."""
    parts: list[str | Path] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            parts.append(match[0][0])
        elif match[1] is None:
            raise ValueError(f"a single {match[0]!r} at position {match.start()}; write {match[0] * 2!r} for a brace")
        else:
            parts.append(parse_path(match[1].strip()))
    if end < len(text):
        parts.append(text[end:])
    return Template(tuple(parts))


def parse_tree(value: Any) -> Tree:
    """Raises ValueError."""
    return Tree(_parsed(value))


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        return parse_template(value)
    if isinstance(value, Mapping):
        return {str(name): _parsed(item) for name, item in value.items()}
    return [_parsed(item) for item in value] if isinstance(value, list) else value


def _filled(node: Any, record: SourceRecord, field: str) -> Any:
    if isinstance(node, Template):
        return node.value(record, field)
    if isinstance(node, dict):
        return {name: _filled(item, record, f"{field}.{name}") for name, item in node.items()}
    return [_filled(item, record, field) for item in node] if isinstance(node, list) else node


def _found(path: Path, record: SourceRecord, field: str) -> Any:
    found = path.find(record)
    if found is MISSING:
        raise BadRecord(f"the record has no {path.text}", field)
    return found


def _shown(path: Path, record: SourceRecord, field: str) -> str:
    found = _found(path, record, field)
    if isinstance(found, str):
        return found
    if isinstance(found, bool | int | float):
        return dumps(found).decode()
    kind = "an object" if isinstance(found, dict) else "a list" if isinstance(found, list) else "null"
    raise BadRecord(f"{path.text} is {kind}, which cannot stand within a text", field)
