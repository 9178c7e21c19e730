"""The Lua script that the page about fencing shows, as it stands there, on a Redis of the test's own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fencing import servers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "fencing.md"


@pytest.fixture(scope="module")
def redis() -> Iterator[list[str]]:
    with servers.redis() as ask:
        yield ask


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = re.search(r"<!-- file: fence\.lua -->\n```lua\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    path = tmp_path_factory.mktemp("lua") / "fence.lua"
    path.write_text(found[1])
    return path


def test_the_script_of_the_page_refuses_a_stale_epoch_in_the_step_that_writes(redis: list[str], script: Path) -> None:
    def write(epoch: int, value: str, task: str = "shop/billing") -> str:
        command = [*redis, "--eval", str(script), "balance", "fencepost:epochs", ",", task, str(epoch), value]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def balance() -> str:
        return subprocess.run([*redis, "GET", "balance"], capture_output=True, text=True, check=True).stdout.strip()

    assert write(1, "one") == "OK"
    assert write(3, "three") == "OK"
    assert "STALE epoch 2 of shop/billing" in write(2, "two")
    assert balance() == "three"
    assert write(3, "three again") == "OK"
    assert write(1, "another task's", "shop/other") == "OK"
    assert "epoch" in write(0, "nothing")
    assert balance() == "another task's"
