"""The page about views, followed from top to bottom with the installed wheel."""

from __future__ import annotations

import pytest

from tests.acceptance.pages import ROOT, Reader, blocks_of

PAGE = ROOT / "docs" / "views.md"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everything_the_page_about_views_shows_works_as_shown(reader: Reader) -> None:
    for block in blocks_of(PAGE):
        assert block.language == "console" or block.mark == "file", f"line {block.line}: a block that nothing runs"
        reader.follow(block)
    assert reader.leave() == dict.fromkeys(reader.leave(), 0), reader.heard()
