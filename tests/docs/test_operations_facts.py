"""What the page about operations lists is what the code has: metrics, log lines, exit codes, variables of commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from fencepost.cli import failures
from fencepost.worker.decide import CLOGGED_AFTER_S
from fencepost.worker.guard import command_stub
from fencepost.worker.lane import INBOX_LIMIT
from fencepost.worker.metrics import PrometheusMeters
from fencepost.worker.worker import CLOSE_LIMIT_S, LONGEST_CALL_S, Exit
from tests.docs.test_readme_facts import ROOT, rows_of

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
SOURCES = ROOT / "streams" / "fencepost"


def test_every_metric_is_listed_and_no_other() -> None:
    meters = PrometheusMeters("w1")
    meters.run_ended("t", "interrupted", "lost")
    meters.dead_letter("priority")
    meters.transaction("confirmed", 0.1, 1)
    meters.gauges(
        lane=0, in_flight=0, ready=0, backlog=0, oldest_waiting_s=0, partitions=0, rebalances=1, clock_difference_s=0
    )
    families = re.findall(r"^# TYPE (fencepost_\S+) ", meters.exposition()[0].decode(), re.MULTILINE)
    exposed = {name for name in families if not name.endswith("_created")}
    assert {cells[0].strip("`") for cells in rows_of(PAGE, "metric")} == exposed


def logged() -> Iterator[tuple[str, str]]:
    """(event, level) of every line that a worker writes at info and above."""
    for path in [*sorted((SOURCES / "worker").rglob("*.py")), *sorted((SOURCES / "kafka").glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                level, event = node.func.attr, node.args[0]
                if level in ("info", "warning", "error", "exception") and isinstance(event, ast.Constant):
                    yield str(event.value), "error" if level == "exception" else level


def test_every_line_a_worker_logs_is_explained_with_its_level_and_no_other() -> None:
    told = {
        (event, cells[1]) for cells in rows_of(PAGE, "event") for event in re.findall(r"`([^`]+)`", cells[0])
    }  # fmt: skip
    assert told == set(logged())


def test_exit_codes_are_those_of_the_code() -> None:
    told = {int(cells[0]) for cells in rows_of(PAGE, "code")}
    known = {failures.OK, failures.FAILURE, failures.USAGE, failures.UNKNOWN, failures.INTERRUPTED, *Exit}
    assert told == {int(code) for code in known} | {128 + 9}
    assert Exit.CUT_OFF == 3


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"reads at most {INBOX_LIMIT:,} a partition ahead" in PAGE
    assert CLOGGED_AFTER_S == 0.5
    assert f"A stop that takes {CLOSE_LIMIT_S:g} s\nlonger" in PAGE
    assert f"({LONGEST_CALL_S:g} s at least)" in PAGE


def test_every_variable_of_a_command_is_explained_and_no_other() -> None:
    source = Path(command_stub.__file__).read_text(encoding="utf-8")
    named = {name for cells in rows_of(GUIDE, "variable") for name in re.findall(r"`(\w+)`", cells[0])}
    assert named == set(re.findall(r'"(FENCEPOST_\w+)"', source))
