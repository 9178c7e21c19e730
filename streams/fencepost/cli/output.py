"""What commands print: a table or lines for people, one JSON document for programs. Messages go to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepost.codec import dumps

_WIDE = 240  # no terminal: lines as long as they need to be


def emit(document: Any) -> None:
    """The JSON document, and a newline; nothing else ever goes to stdout with --json."""
    sys.stdout.buffer.write(dumps(document) + b"\n")
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """A line for people, on stdout."""
    print(text, flush=True)


def note(text: str) -> None:
    """A message beside the result, on stderr."""
    print(text, file=sys.stderr, flush=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table, or the line `empty` where there are no rows. Cells are shown as they are, never as markup."""
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, soft_wrap=False)
    grid = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, show_header=any(headings))
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    filled = False
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
        filled = True
    if filled:
        console.print(grid)
    else:
        say(empty)


def printable(cell: object) -> str:
    """Text without what could steer a terminal; None is a dash."""
    if cell is None or cell == "":
        return "-"
    return "".join(char if char.isprintable() else "�" for char in str(cell))


def local_time(at_ms: int | None) -> str | None:
    """The time on this machine's wall, with its offset; None stays None."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def age(at_ms: int | None) -> str | None:
    """How long ago, in words: '3 s ago', 'in 2 h'."""
    if at_ms is None:
        return None
    seconds = (time.time_ns() // 1_000_000 - at_ms) / 1000
    text = duration(abs(seconds))
    return f"{text} ago" if seconds >= 0 else f"in {text}"


def duration(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
