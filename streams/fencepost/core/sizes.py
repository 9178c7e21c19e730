"""How large a JSON value is, about: for limits on what one step may ask for."""

from __future__ import annotations

from typing import Any


def json_bytes(value: Any) -> int:
    """Bytes of the value as compact JSON, without what escapes add to its texts."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 2
    if isinstance(value, dict):
        return 2 + sum(json_bytes(name) + json_bytes(item) + 2 for name, item in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(json_bytes(item) + 1 for item in value)
    return len(repr(value))
