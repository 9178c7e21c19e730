"""One history from its seed: what was planned runs, then a quiet time, then everything is checked."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.wire.owners import decode_fence
from tests.simulation import stage
from tests.simulation.checks import Violation, check, unsettled
from tests.simulation.kernel import SECOND_US
from tests.simulation.plan import Plan, draw
from tests.simulation.world import World

LOOK_EVERY_S = 2.0
QUIET_LIMIT_S = 150.0
CALM_AFTER_S = 1.5
STEPS_LIMIT = 3_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one history came to."""

    seed: int
    plan: Plan
    violations: tuple[Violation, ...]
    runs: int
    steps: int
    virtual_s: float
    settled_s: float  # how long the quiet time had to be

    @property
    def holds(self) -> bool:
        return not self.violations


def run(
    seed: int, theme: str | None = None, trace: Callable[[str], None] | None = None, plan: Plan | None = None
) -> Outcome:
    """Play the history of this seed, with stand-ins installed. The same seed gives the same history, step by step."""
    plan = draw(seed, theme) if plan is None else plan
    world = World(plan, trace)
    stage.enter(world)
    collecting = gc.isenabled()
    gc.disable()  # a collection may end what is left of another history in the middle of this one
    try:
        world.set_up()
        violations = _play(world)
        settled_s = world.kernel.now_us / SECOND_US - plan.active_s
        if not any(violation.kind == "livelock" for violation in violations):
            violations += check(world)
        return Outcome(
            seed, plan, tuple(violations), len(world.facts.lives), world.kernel.steps,
            world.kernel.now_us / SECOND_US, settled_s,
        )  # fmt: skip
    finally:
        world.end()
        stage.leave()
        if collecting:
            gc.enable()


def _play(world: World) -> list[Violation]:
    kernel, plan = world.kernel, world.plan
    at_s = plan.active_s
    if not kernel.run(int(at_s * SECOND_US), STEPS_LIMIT):
        return [Violation("livelock", f"{STEPS_LIMIT} steps, and it is {kernel.now_us / SECOND_US:.3f} s")]
    limit_s = at_s + QUIET_LIMIT_S
    while True:
        at_s += LOOK_EVERY_S
        if not kernel.run(int(at_s * SECOND_US), STEPS_LIMIT):
            return [Violation("livelock", f"{STEPS_LIMIT} steps, and it is {kernel.now_us / SECOND_US:.3f} s")]
        left = unsettled(world)
        if not left:
            kernel.run(int((at_s + CALM_AFTER_S) * SECOND_US), STEPS_LIMIT)
            while world.broker.transactions.half_marked():  # what is only half readable cannot be compared
                kernel.run(kernel.now_us + 1_000, STEPS_LIMIT)
            return []
        if at_s > limit_s:
            if limit_s < plan.active_s + 2 * QUIET_LIMIT_S + plan.settings.transaction_timeout_s and _unnamed(world):
                limit_s += QUIET_LIMIT_S + plan.settings.transaction_timeout_s
                continue
            return left


def _unnamed(world: World) -> bool:
    """Whether a transaction is open that nobody can end: no fence record names its producer.

    A known gap: a lane that dies inside its first transaction for a partition is named by nothing that can be read, and
    the next owner waits until that transaction times out.
    """
    named: set[str] = set()
    for (topic, _number), log in world.broker.logs.items():
        if topic.endswith(".owners"):
            for entry in log.readable(0):
                if entry.key is not None and entry.key.isdigit() and entry.value is not None:
                    fence = decode_fence(entry.value)
                    named.update(fence.ring)
                    named.update(name for holder in fence.open for name in holder.ring)
    return any(producer.name not in named for producer in world.broker.transactions.ongoing())
