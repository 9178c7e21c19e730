from __future__ import annotations

from pathlib import Path

from fencepost.core.diagram import diagram, page

PAGE = Path(__file__).parents[2] / "docs" / "state-diagram.md"
WRITE_AGAIN = "python -c \"from fencepost.core.diagram import page; print(page(), end='')\" > docs/state-diagram.md"


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == page(), f"write it again: {WRITE_AGAIN}"


def test_a_start_is_the_only_way_to_run() -> None:
    into_running = [line.strip() for line in diagram().splitlines() if "--> running" in line]
    assert into_running == ["idle --> running: Started", "backoff --> running: Started"]
