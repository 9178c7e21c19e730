"""The world of `fencepost.testing` and a worker on a real Kafka do the same."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fencepost.testing import world
from tests.conformance.app import app
from tests.conformance.bench import InMemory, OnKafka
from tests.conformance.scenarios import SCENARIOS, Scenario
from tests.scenarios.stage import Stage, on_stage
from tests.testing.judged import findings

if TYPE_CHECKING:
    from fencepost.broker import Cluster

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@each_scenario
def test_in_memory(scenario: Scenario) -> None:
    with world(app) as made:
        scenario(InMemory(scenario.__name__, made))
        assert findings(made) == []


@pytest.fixture(scope="module")
def stage(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One namespace for all scenarios, and one worker unless a scenario starts another."""
    with on_stage(kafka.bootstrap, f"t{uuid.uuid4().hex[:10]}", tmp_path_factory.mktemp("conformance")) as made:
        yield made
        made.cli("verify")


@each_scenario
def test_on_kafka(scenario: Scenario, stage: Stage) -> None:
    scenario(OnKafka(scenario.__name__, stage))
