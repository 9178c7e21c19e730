"""The page about fencing, followed from top to bottom with the installed wheel and a PostgreSQL of the test's own."""

from __future__ import annotations

import pytest

from tests.acceptance.pages import ROOT, Reader, blocks_of
from tests.fencing import servers

PAGE = ROOT / "docs" / "fencing.md"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_the_page_about_fencing_shows_works_as_shown(reader: Reader) -> None:
    shown = [block for block in blocks_of(PAGE) if block.mark == "shown"]
    assert [block.words.split(" ")[0] for block in shown] == ["boto3"], "everything else is run"
    with servers.postgres() as server:
        reader.env |= server.env
        for block in blocks_of(PAGE):
            assert block.language == "console" or block.mark in ("file", "shown"), f"line {block.line}: nothing runs it"
            reader.follow(block)
        assert len(reader.done) >= 14
        assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()
