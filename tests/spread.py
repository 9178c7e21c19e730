"""How tests on real brokers are spread over processes: `pytest -n 4 --dist loadfile`.

A file stays together, since its tests share a broker; a file of `EACH_ALONE` does not. What takes longest begins first,
so that no process works on by itself at the end. Every unit has brokers, ports, folders and names of its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Their tests share nothing, or what `made_once` makes.
EACH_ALONE = frozenset(
    {
        "tests/acceptance/test_demo.py",
        "tests/acceptance/test_guide.py",
        "tests/faults/test_campaign.py",
        "tests/faults/test_lost_coordinator.py",
        "tests/scenarios/test_node_fence.py",
    }
)

CONTAINERS = "tests/containers/"

# Seconds that the long units take, about: only their order matters. One that is not here is short.
LONG = {
    "tests/acceptance/test_guide.py::test_everything_the_guide_shows_works_as_shown": 300,
    "tests/faults/test_campaign.py::test_faults_of_workers_and_of_the_only_broker_under_the_consumer_protocol": 280,
    "tests/faults/test_campaign.py::test_faults_of_workers_and_of_one_broker_of_three_under_the_classic_protocol": 270,
    CONTAINERS: 260,
    "tests/acceptance/test_guide.py::test_everything_the_page_about_dependencies_shows_works_as_shown": 180,
    "tests/acceptance/test_guide.py::test_everything_the_page_about_pools_shows_works_as_shown": 170,
    "tests/scenarios/test_degradation.py": 160,
    "tests/acceptance/test_views.py": 150,
    "tests/scenarios/test_dependencies.py": 150,
    "tests/acceptance/test_guide.py::test_everything_the_page_about_limits_shows_works_as_shown": 140,
    "tests/scenarios/test_membership.py": 130,
    "tests/acceptance/test_readme.py": 120,
    "tests/acceptance/test_fencing.py": 110,
    "tests/acceptance/test_demo.py::test_the_demo_proves_the_promise_and_keeps_kafka_up_when_asked": 110,
    "tests/kafka/lane/test_takeover.py": 100,
    "tests/kafka/lane/test_late_end.py": 100,
    "tests/scenarios/test_attempts.py": 95,
    "tests/scenarios/test_schedules.py": 90,
    "tests/scenarios/test_runs_again.py": 90,
    "tests/scenarios/test_degradation_of_topics.py": 90,
    "tests/scenarios/test_restore.py": 80,
    "tests/scenarios/test_overlap.py": 75,
    "tests/scenarios/test_as_people_use_it.py": 75,
    "tests/scenarios/test_rules.py": 70,
    "tests/scenarios/test_priority.py": 70,
    "tests/kafka/lane/test_lost_logs.py": 60,
    "tests/kafka/lane/test_hanging.py": 60,
    "tests/scenarios/test_views.py": 60,
    "tests/scenarios/test_pools.py": 55,
    "tests/kafka/test_client_commands.py": 50,
    "tests/kafka/test_embedded_broker.py": 50,
    "tests/kafka/test_audit.py": 50,
    "tests/kafka/test_rights.py": 45,
    "tests/scenarios/test_slots_of_the_past.py": 43,
    "tests/kafka/lane/test_fenced.py": 42,
    "tests/scenarios/test_fencing.py": 36,
    "tests/scenarios/test_batches.py": 36,
    "tests/kafka/lane/test_restored.py": 35,
    "tests/scenarios/test_bad_records.py": 33,
    "tests/conformance/test_conformance.py": 31,
    "tests/kafka/test_broker_control.py": 30,
}


def unit_of(nodeid: str) -> str:
    """What stays together: the file, or the test by itself; and all that needs the one container engine."""
    file = nodeid.partition("::")[0]
    if file.startswith(CONTAINERS):
        return CONTAINERS
    return nodeid if file in EACH_ALONE else file


class Spread(LoadScopeScheduling):
    """Hands out one unit after the other, the longest first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda unit: LONG.get(unit, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first process of this test run to ask for it makes, and all others share."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, whole = shared / name, shared / f"{name}.whole"
    with open(shared / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            whole.touch()
    return folder
