from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.worker.guard.client import GuardedRunners
from tests.worker.bench import Bench, Witness, ended_processes, family, settings


@pytest.fixture
def bench_of() -> Iterator[Callable[..., Bench]]:
    """Makes runners with changed settings; ends them, and checks that nothing of them is left."""
    made: list[GuardedRunners] = []

    def make(**changes: Any) -> Bench:
        runners = GuardedRunners(settings(**changes))
        made.append(runners)
        return Bench(runners)

    yield make
    for runners in made:
        pids = [process.pid for process in family(runners.guard_pid)]
        runners.close(0.0)
        assert ended_processes(pids)


@pytest.fixture(params=["auto", "process-groups"])
def bench(request: pytest.FixtureRequest, bench_of: Callable[..., Bench]) -> Bench:
    """Runners, once held by the strongest means this machine permits and once by the weaker one."""
    return bench_of(containment=request.param, commands=("/bin/sh", "/bin/cat", "env"))


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    made = Witness(tmp_path)
    yield made
    made.close()
