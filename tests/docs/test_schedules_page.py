"""What the page on schedules shows, run line by line."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.main import run
from fencepost.cli.taskfile import read_task_files
from fencepost.core.schedule import Adjusted, Several
from fencepost.wire.definition import read_definition
from tests.acceptance.pages import ROOT, Line, blocks_of, lines_of

PAGE = ROOT / "docs" / "schedules.md"
BLOCKS = blocks_of(PAGE)
LINES = [line for block in BLOCKS if block.language == "console" for line in lines_of(block)]
FILES = [block for block in BLOCKS if block.mark == "file"]


@pytest.fixture(autouse=True)
def settings_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FENCEPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for block in FILES:
        Path(block.words).write_text(block.text)


def test_every_block_is_run_or_read() -> None:
    assert len(LINES) >= 12
    assert all(block.language == "console" or block.mark in ("file", "schema") for block in BLOCKS)
    assert all(line.expected for line in LINES)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.command[:60])
def test_a_command_shows_what_the_page_says(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(line.command)
    assert program == "fencepost"
    assert run(arguments) == line.exit_code
    output = capsys.readouterr()
    assert line.to_be_shown in output.out + output.err


def test_the_task_file_and_the_app_declare_what_they_show() -> None:
    definitions = {item.task: item for item in read_task_files([Path("schedules.toml")])}
    report, shop = definitions["report"].schedule, definitions["shop"].schedule
    assert isinstance(report, Adjusted)
    assert (report.jitter_s, report.calendar and report.calendar.closed) == (600, ("2026-12-24",))
    assert isinstance(shop, Several)
    assert len(shop.schedules) == 3
    module: dict[str, Any] = {}
    exec(Path("schedules.py").read_text(), module)
    office, often = module["app"].definitions()
    assert isinstance(office.schedule, Adjusted)
    assert isinstance(often.schedule, Several)


def test_the_record_is_a_definition() -> None:
    (record,) = [block for block in BLOCKS if block.mark == "schema"]
    task, definition = read_definition(b"report", record.text.encode())
    assert task == "report"
    assert definition is not None
    assert isinstance(definition.schedule, Several)


def test_the_page_is_linked_from_the_guide() -> None:
    assert "(schedules.md)" in (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
