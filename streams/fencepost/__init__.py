"""Fencepost: a task scheduler whose only coordinator is Kafka.

The names below are loaded when first used: the guard and the runners import this package too and stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencepost.version import __version__

if TYPE_CHECKING:
    from fencepost.app import (
        App,
        AppError,
        Calendar,
        Command,
        Cron,
        Every,
        Http,
        Limit,
        Once,
        Retry,
        adjusted,
        at,
        every,
    )
    from fencepost.client import Client, Handle, NotKept, RunFailed
    from fencepost.run_context import RunContext
    from fencepost.settings import Settings, SettingsError
    from fencepost.views.record import SourceRecord
    from fencepost.views.rule import Trigger

__all__ = [
    "App",
    "AppError",
    "Calendar",
    "Client",
    "Command",
    "Cron",
    "Every",
    "Handle",
    "Http",
    "Limit",
    "NotKept",
    "Once",
    "Retry",
    "RunContext",
    "RunFailed",
    "Settings",
    "SettingsError",
    "SourceRecord",
    "Trigger",
    "__version__",
    "adjusted",
    "at",
    "every",
]

_HOMES = {
    "App": "fencepost.app",
    "AppError": "fencepost.app",
    "adjusted": "fencepost.app",
    "at": "fencepost.app",
    "every": "fencepost.app",
    "Calendar": "fencepost.app",
    "Command": "fencepost.app",
    "Cron": "fencepost.app",
    "Every": "fencepost.app",
    "Http": "fencepost.app",
    "Limit": "fencepost.app",
    "Once": "fencepost.app",
    "Retry": "fencepost.app",
    "Client": "fencepost.client",
    "Handle": "fencepost.client",
    "NotKept": "fencepost.client",
    "RunFailed": "fencepost.client",
    "RunContext": "fencepost.run_context",
    "Settings": "fencepost.settings",
    "SettingsError": "fencepost.settings",
    "SourceRecord": "fencepost.views.record",
    "Trigger": "fencepost.views.rule",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
