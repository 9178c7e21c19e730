"""Which commands this worker may start."""

from __future__ import annotations

import shutil


class AllowedCommands:
    """What `argv[0]` may be, exactly as it is written, and the file that is meant by it.

    A name is looked up on PATH once, at the start. One that is not found cannot be run.
    """

    def __init__(self, commands: tuple[str, ...]) -> None:
        self._files: dict[str, str] = {}
        for command in commands:
            path = command if command.startswith("/") else shutil.which(command)
            if path is not None:
                self._files[command] = path

    def find(self, command: str) -> str | None:
        return self._files.get(command)

    def refusal(self, command: str) -> str:
        allowed = ", ".join(sorted(self._files)) or "none"
        return f"handler.argv[0]: {command!r} is not on this worker's list of commands (allowed: {allowed})"
