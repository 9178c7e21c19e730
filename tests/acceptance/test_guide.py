"""The guide and its pages, followed from top to bottom with the installed wheel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.pages import ROOT, Line, Reader, blocks_of

GUIDE = ROOT / "docs" / "guide.md"
LIMITS = ROOT / "docs" / "limits.md"
POOLS = ROOT / "docs" / "pools.md"
DEPENDENCIES = ROOT / "docs" / "dependencies.md"


def follow(reader: Reader, page: Path, *, at_least: int) -> None:
    """Everything the page shows, in its order; there is nothing on it that is only to be believed."""
    for block in blocks_of(page):
        assert block.language == "console" or block.mark == "file", f"line {block.line}: a block that nothing runs"
        reader.follow(block)
    assert len(reader.done) >= at_least


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_everything_the_guide_shows_works_as_shown(reader: Reader) -> None:
    follow(reader, GUIDE, at_least=50)
    reader.run(Line("fencepost workers", "active"))
    verdict = json.loads(reader.run(Line("fencepost verify --app jobs:app --json", '"holds":true')))
    assert (verdict["unreadable"], verdict["complete"]) == ([], True)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_everything_the_page_about_dependencies_shows_works_as_shown(reader: Reader) -> None:
    follow(reader, DEPENDENCIES, at_least=20)
    reader.run(Line("fencepost workers", "active"))
    verdict = json.loads(reader.run(Line("fencepost verify --json", '"holds":true')))
    assert (verdict["unreadable"], verdict["complete"]) == ([], True)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_everything_the_page_about_pools_shows_works_as_shown(reader: Reader) -> None:
    follow(reader, POOLS, at_least=20)
    for pool in ("", " --pool gpu"):
        verdict = json.loads(reader.run(Line(f"fencepost verify --json{pool}", '"holds":true')))
        assert (verdict["unreadable"], verdict["complete"]) == ([], True)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_everything_the_page_about_limits_shows_works_as_shown(reader: Reader) -> None:
    follow(reader, LIMITS, at_least=14)
    verdict = json.loads(reader.run(Line("fencepost verify --app reports:app --json", '"holds":true')))
    assert (verdict["unreadable"], verdict["complete"]) == ([], True)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()
