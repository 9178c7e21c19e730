"""How the demo looks: plain lines with the seconds since it began."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDTH = 110
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


class Show:
    """Lines for people. Colours where the output is a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal or self.console.width > WIDTH:
            self.console = Console(highlight=False, width=WIDTH)
        self._began_s = time.monotonic()
        self.colours: dict[str, str] = {}

    def worker(self, name: str) -> str:
        """The worker's name in its colour, as markup."""
        return f"[bold {self.colour(name)}]{escape(name)}[/]"

    def colour(self, name: str) -> str:
        return self.colours.setdefault(name, COLOURS[len(self.colours) % len(COLOURS)])

    def act(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(f"[bold]{title}[/]", align="left", style="dim"))

    def line(self, markup: str, mark: str = " ") -> None:
        stamp = f"[dim]{time.monotonic() - self._began_s:6.1f} s[/]"
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(width=1)
        grid.add_column(overflow="fold")
        grid.add_row(stamp, mark, markup)
        self.console.print(grid)

    def done(self, markup: str) -> None:
        self.line(markup, "[green]✓[/]")

    def bad(self, markup: str) -> None:
        self.line(markup, "[bold red]✗[/]")

    def strike(self, markup: str) -> None:
        """A fault."""
        self.line(markup, "[bold yellow]![/]")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for heading in headings:
            grid.add_column(heading, overflow="fold", justify="right" if heading.startswith(">") else "left")
        for column in grid.columns:
            column.header = str(column.header).removeprefix(">")
        for row in rows:
            grid.add_row(*row)
        self.console.print(grid)
