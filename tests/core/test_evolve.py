from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from fencepost.core.evolve import builder, changer
from fencepost.core.task import TaskState, Work


def test_a_built_record_is_an_ordinary_one() -> None:
    build = builder(Work)
    made = build(7, "id", priority=2)
    assert made == Work(7, "id", priority=2)
    assert type(made) is Work
    assert hash(made) == hash(Work(7, "id", priority=2))
    assert repr(made) == repr(Work(7, "id", priority=2))
    with pytest.raises(FrozenInstanceError):
        made.seq = 8  # type: ignore[misc]
    assert not hasattr(made, "__dict__")


def test_a_changed_record_differs_in_the_named_fields_only() -> None:
    old = TaskState("a", epoch=4, trigger_offset=9)
    change = changer(TaskState, "epoch", "paused")
    assert change(old, 5, True) == replace(old, epoch=5, paused=True)
    assert old.epoch == 4


def test_missing_and_unknown_arguments_are_errors() -> None:
    with pytest.raises(TypeError):
        builder(Work)()
    with pytest.raises(TypeError):
        builder(Work)(1, colour="red")
    with pytest.raises(TypeError, match="no field"):
        changer(Work, "colour")


@dataclass(frozen=True, slots=True)
class WithPostInit:
    a: int

    def __post_init__(self) -> None:
        raise AssertionError


@dataclass(frozen=True, slots=True)
class WithFactory:
    a: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class WithoutSlots:
    a: int


@dataclass(frozen=True, slots=True)
class Child(Work):
    extra: int = 0


@pytest.mark.parametrize("record", [WithPostInit, WithFactory, WithoutSlots, Child])
def test_records_that_would_not_be_made_whole_are_refused(record: type) -> None:
    with pytest.raises(TypeError):
        builder(record)
