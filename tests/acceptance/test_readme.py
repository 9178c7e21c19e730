"""README, followed from top to bottom with the installed wheel."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.acceptance.pages import INSTALL, ROOT, Line, Reader, blocks_of, lines_of

README = ROOT / "README.md"
# Lines that are not for the reader to run here, with what runs them.
ELSEWHERE = {
    "make demo": "test_demo.py runs the demo",
    "make test": "these tests are its last part",
    INSTALL: "the fixture `environment` has run it",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_readme_shows_works_as_shown(reader: Reader) -> None:
    left = dict(ELSEWHERE)
    for block in blocks_of(README):
        if block.language == "console":
            for line in lines_of(block):
                command = " ".join(line.command.partition("  #")[0].split())
                if left.pop(command, None) is None:
                    reader.run(line)
        elif block.language != "mermaid":  # the diagram: another test compares it with the table
            assert block.mark == "file", f"README line {block.line}: a block that nothing runs"
            reader.follow(block)
    assert left == {}, "README does not say these any more"
    assert len(reader.done) >= 12
    assert_nothing_was_refused(reader)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()
    reader.run(Line("fencepost down", "stopped 1 of 1 nodes"))


def assert_nothing_was_refused(reader: Reader) -> None:
    letters = reader.run(Line("fencepost dlq list --json", None))
    assert json.loads(letters) == {"dead_letters": []}
    runs = json.loads(reader.run(Line("fencepost runs --json --limit 0", None)))["runs"]
    assert {run["outcome"] for run in runs} == {"succeeded"}
    assert [run["epoch"] for run in runs if run["task"] == "greet/ada"] == [1, 2]


@pytest.mark.parametrize("target", ["demo", "test", "wheel", "bench"])
def test_make_knows_what_readme_names(target: str) -> None:
    assert f"make {target}" in README.read_text(encoding="utf-8") or target == "test"
    done = subprocess.run(
        [shutil.which("make") or "make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
