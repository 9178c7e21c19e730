"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.settings import Settings

Config = Annotated[
    list[Path] | None,
    typer.Option("--config", help="Settings file; may be given more than once. Default: config/*.toml."),
]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="Kafka's address, host:port[,host:port…].")]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Prefix of all topics.")]
Pool = Annotated[
    str | None, typer.Option("--pool", help="A pool of the namespace: its own topics, workers and history.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of a table.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="As it was at this time (RFC 3339), or so long ago, such as 10m or 2d."),
]
TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's ID.")]


def load_settings(config: list[Path] | None, bootstrap: str | None, namespace: str | None, **more: Any) -> Settings:
    """All layers of settings with these arguments on top; None counts as not given. Raises SettingsError."""
    return Settings.load(config or None, overrides={"bootstrap": bootstrap, "namespace": namespace, **more})
