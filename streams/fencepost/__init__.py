"""Fencepost: a task scheduler whose only coordinator is Kafka.

The names below are loaded when first used: the guard and the runners import this package too and stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.app import App, Command, Cron, Every, Once, Retry
    from fencepost.client import Client, Handle, TaskFailed
    from fencepost.settings import Settings, SettingsError
    from fencepost.worker.context import RunContext

__version__ = "0.1.0"

__all__ = [
    "App",
    "Client",
    "Command",
    "Cron",
    "Every",
    "Handle",
    "Once",
    "Retry",
    "RunContext",
    "Settings",
    "SettingsError",
    "TaskFailed",
    "__version__",
]

_HOMES = {
    "App": "fencepost.app",
    "Command": "fencepost.app",
    "Cron": "fencepost.app",
    "Every": "fencepost.app",
    "Once": "fencepost.app",
    "Retry": "fencepost.app",
    "Client": "fencepost.client",
    "Handle": "fencepost.client",
    "TaskFailed": "fencepost.client",
    "RunContext": "fencepost.worker.context",
    "Settings": "fencepost.settings",
    "SettingsError": "fencepost.settings",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
