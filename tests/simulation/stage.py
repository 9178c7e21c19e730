"""Which process is on: what the stand-ins for clients, clocks and randomness ask when they are made or called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_worlds: list[World] = []


def enter(world: World) -> None:
    _worlds.append(world)


def leave() -> None:
    _worlds.pop()


def world() -> World:
    return _worlds[-1]


def here() -> Process:
    """The process whose fiber is on."""
    fiber = _worlds[-1].kernel.current
    assert fiber is not None, "outside of any process"
    return fiber.process
