"""The page about testing tasks: its files and commands work as shown."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from fencepost.testing import Run, World
from tests.acceptance.pages import ROOT, blocks_of, lines_of

PAGE = ROOT / "docs" / "testing-tasks.md"


def test_everything_the_page_shows_works_as_shown(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT / "streams")}
    done = 0
    for block in blocks_of(PAGE):
        if block.mark == "file":
            (tmp_path / block.words).write_text(block.text, encoding="utf-8")
            continue
        assert block.language == "console", f"line {block.line}: a block that nothing runs"
        for line in lines_of(block):
            command = line.command.replace("python", sys.executable, 1)
            told = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=100
            )
            assert told.returncode == 0, told.stdout + told.stderr
            assert line.to_be_shown in told.stdout
            done += 1
    assert done


def test_every_method_and_every_field_of_a_run_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    inner = {"at_offset", "close", "new_id", "sleep", "take"}
    asking = {"trigger", "rerun", "backfill", "cancel", "pause", "resume", "delete", "apply"}
    public = {name for name, _ in inspect.getmembers(World, inspect.isfunction) if not name.startswith("_")} - inner
    assert {name for name in public - asking if f"world.{name}" not in page} == set()
    assert {name for name in asking if f"app.{name}" not in page} == set()
    assert {item.name for item in fields(Run) if f"`{item.name}`" not in page} == set()
