"""Tasks declared in code, which every worker of the app has: exact IDs, and patterns such as ``invoice/*``.

A definition in code is never published; an ID's own record in the tasks topic goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from fencepost.core.task import CommandHandler, Definition, Handler, PythonHandler


class Declared:
    """What the app declares, and which functions it has."""

    def __init__(self, definitions: Iterable[Definition], functions: Iterable[str]) -> None:
        self.exact: dict[str, Definition] = {}
        self._patterns: list[Definition] = []
        self._made: dict[str, Definition] = {}
        self.functions = frozenset(functions)
        for definition in definitions:
            if any(sign in definition.task for sign in "*?["):
                self._patterns.append(definition)
            else:
                self.exact[definition.task] = definition

    def find(self, task_id: str) -> Definition | None:
        """The definition for an ID; of several patterns the longest (the most particular) counts."""
        known = self.exact.get(task_id) or self._made.get(task_id)
        if known is not None or not self._patterns:
            return known
        fitting = [item for item in self._patterns if fnmatchcase(task_id, item.task)]
        if not fitting:
            return None
        best = max(fitting, key=lambda item: len(item.task))
        made = replace(best, task=task_id)
        if len(self._made) >= 100_000:
            self._made.clear()
        self._made[task_id] = made
        return made

    def can_run(self, handler: Handler, commands: Iterable[str]) -> bool:
        """Whether this worker has the handler. One that lacks it leaves the run waiting as ``no_handler``."""
        if isinstance(handler, PythonHandler):
            return handler.function in self.functions
        return isinstance(handler, CommandHandler) and handler.argv[0] in set(commands)
