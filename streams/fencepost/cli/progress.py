"""A progress bar on stderr, for those who wait at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str, *, wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """What is to be called with (done, of); None where nobody looks: piped, redirected, or not wanted (--json)."""
    if not (wanted and sys.stdout.isatty() and sys.stderr.isatty()):
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(shown, completed=done, total=max(of, 1))
