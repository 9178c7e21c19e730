"""Fixtures all tests share: the broker, and a namespace of its own for each test.

`kafka` is a real Apache Kafka, started once for each file of tests, in a folder and on ports of its own, and gone when
they are done, however they end.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.spread import Spread

if TYPE_CHECKING:
    from fencepost.broker import Cluster

# A shell starts what it puts in the background with SIGINT ignored; what tests start and end by it would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A time limit per example would make a slow machine fail; CI replays the same examples each time.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

TESTS = Path(__file__).parent
MARKER_OF_FOLDER = {
    "kafka": "kafka",
    "scenarios": "kafka",
    "faults": "faults",
    "containers": "containers",
    "acceptance": "acceptance",
}
# What the Makefile's parts rely on, to read no more than they run.
NO_BROKER = frozenset(
    ("bench", "cli", "core", "docs", "fencing", "model", "schemas", "simulation", "testing", "views", "worker")
)
BROKER_MARKS = frozenset({"kafka", "faults", "containers", "acceptance"})
HOME_OF_MARKER = {name: name for name in ("simulation", "model", "containers", "acceptance")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by their folder, and by their wish for the broker, before `-m` selects.

    Raises UsageError for a test that none of the Makefile's parts would find where it is.
    """
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in MARKER_OF_FOLDER:
            item.add_marker(MARKER_OF_FOLDER[folder])
        elif "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")
        for mark in item.iter_markers():
            if (folder in NO_BROKER and mark.name in BROKER_MARKS) or HOME_OF_MARKER.get(mark.name, folder) != folder:
                raise pytest.UsageError(
                    f"{item.nodeid}: no part of the tests looks for `{mark.name}` in tests/{folder}"
                )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread | None:
    """`--dist loadfile` spreads as `tests/spread.py` says."""
    return Spread(config, log) if config.getvalue("dist") == "loadfile" else None


def note_broker(text: str) -> None:
    """Adds a line to the list of brokers that `.ci/run` prints in its summary."""
    if path := os.environ.get("FENCEPOST_TEST_BROKERS"):
        with open(path, "a", encoding="utf-8") as out:
            out.write(text + "\n")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running one-node Kafka. Tests share it: leave it as you found it, and use `namespace` for your topics.

    One for each file of tests: it starts in two seconds, and one that holds the topics of hundreds of tests is slow.
    """
    from fencepost.broker import Cluster

    with Cluster(tmp_path_factory.mktemp("kafka"), heap_mb=512) as cluster:
        note_broker(f"embedded Apache Kafka {cluster.version}, one node")
        yield cluster


@pytest.fixture
def namespace() -> str:
    """A namespace no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
