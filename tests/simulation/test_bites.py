"""Without any one safeguard the simulation finds that the promise is broken; with it, the same history holds."""

from __future__ import annotations

import pytest

import fencepost.worker.acquisition
from tests.simulation.history import run
from tests.simulation.install import installed
from tests.simulation.plan import draw
from tests.simulation.safeguards import SAFEGUARDS

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", SAFEGUARDS)
def test_that_without_this_safeguard_a_violation_is_found(name: str) -> None:
    safeguard = SAFEGUARDS[name]
    with installed():
        for seed in range(safeguard.within):
            with safeguard.off():
                kinds = {violation.kind for violation in run(seed, safeguard.theme).violations}
            if kinds & safeguard.finds:
                assert run(seed, safeguard.theme).holds, f"seed {seed} breaks with {name} as well"
                return
    pytest.fail(f"{safeguard.within} histories of the theme {safeguard.theme} hold without {name}")


def test_that_clocks_beyond_the_bound_do_make_runs_overlap() -> None:
    """The wait is no longer than it must be: the assumption about clocks is one that the promise rests on."""
    with installed():
        for seed in range(600):
            plan = draw(seed, "drift")
            plan.beyond_bound = False  # judged as if the clocks were within it
            if any(violation.kind == "overlap" for violation in run(seed, plan=plan).violations):
                return
    pytest.fail("600 histories with clocks 60 % off hold")


def test_that_lanes_that_do_not_pause_after_being_fenced_can_fence_each_other_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fencepost.worker.acquisition, "LONGEST_PAUSE_S", 0.0)
    with installed():
        assert "stuck" in {violation.kind for violation in run(1039, "mixed").violations}
