"""Each row of the page about degradation names a test that is there, and each such test has its row."""

from __future__ import annotations

import ast
import re

from tests.docs.test_readme_facts import ROOT, rows_of

PAGE = (ROOT / "docs" / "degradation.md").read_text(encoding="utf-8")
FILES = (*sorted((ROOT / "tests" / "scenarios").glob("test_degradation*.py")),)
LOAD = ROOT / "tests" / "scenarios" / "test_bad_records_under_load.py"


def names_there() -> set[str]:
    return {
        node.name
        for path in (*FILES, LOAD)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_row_names_its_test_and_each_test_has_a_row() -> None:
    named = [cells[-1].strip("`") for cells in rows_of(PAGE, "what is wrong")]
    assert len(named) == len(set(named))
    assert set(named) == names_there()


def test_log_lines_and_metrics_that_the_page_names_are_known() -> None:
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    lines = {event for cells in rows_of(operations, "event") for event in re.findall(r"`([^`]+)`", cells[0])}
    metrics = {cells[0].strip("`") for cells in rows_of(operations, "metric")}
    quoted = set(re.findall(r"`([^`]+)`", PAGE))
    assert {text for text in quoted if text.startswith("fencepost_")} <= metrics
    assert {text for text in quoted if text.startswith("the ") or text.endswith(("kept", "unknown", "answer"))} <= lines
