from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.pages import Reader, make_environment
from tests.spread import made_once


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the locked requirements and the wheel, built now."""
    return made_once(tmp_path_factory, "installed", make_environment) / "environment"


@pytest.fixture
def reader(environment: Path, tmp_path: Path) -> Iterator[Reader]:
    """Somebody with an empty folder who follows a page."""
    reader = Reader(tmp_path / "reader", environment)
    yield reader
    reader.tidy_up()
