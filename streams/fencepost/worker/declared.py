"""Tasks declared in code, which every worker of the app has: exact IDs, and patterns such as ``invoice/*``.

A definition in code is never published; an ID's own record in the tasks topic goes before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from fencepost.core.making import named
from fencepost.core.task import Definition, Handler, HttpHandler, PythonHandler
from fencepost.worker.guard.hosts import AllowedHosts

MADE_LIMIT = 100_000


class Declared:
    """What the app declares, and which functions it has."""

    def __init__(self, definitions: Iterable[Definition], functions: Iterable[str]) -> None:
        self.exact: dict[str, Definition] = {}
        self._patterns: list[tuple[re.Pattern[str], Definition]] = []
        self._made: dict[str, Definition] = {}
        self.functions = frozenset(functions)
        for definition in definitions:
            if any(sign in definition.task for sign in "*?["):
                self._patterns.append((re.compile(translate(definition.task)), definition))
            else:
                self.exact[definition.task] = definition
        self._patterns.sort(key=lambda item: len(item[1].task), reverse=True)

    def find(self, task_id: str) -> Definition | None:
        """The definition for an ID; of several patterns the longest (the most particular) counts."""
        known = self.exact.get(task_id) or self._made.get(task_id)
        if known is not None or not self._patterns:
            return known
        for pattern, definition in self._patterns:
            if pattern.match(task_id) is not None:
                made = named(definition, task_id)
                if len(self._made) >= MADE_LIMIT:
                    self._made.clear()
                self._made[task_id] = made
                return made
        return None

    def can_run(self, handler: Handler, commands: Iterable[str], call_hosts: tuple[str, ...]) -> bool:
        """Whether this worker has the handler. One that lacks it leaves the run waiting as ``no_handler``."""
        if isinstance(handler, PythonHandler):
            return handler.function in self.functions
        if isinstance(handler, HttpHandler):
            return _may_call(handler.url, call_hosts)
        return handler.argv[0] in set(commands)


@lru_cache(maxsize=4096)
def _may_call(url: str, hosts: tuple[str, ...]) -> bool:
    return AllowedHosts(hosts).refusal_of(url) is None
