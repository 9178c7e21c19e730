"""The guide leaves nothing out: commands, fields of definitions and triggers, what a run is given, an app's methods."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from fencepost import App, RunContext
from fencepost.cli.dlq import group
from fencepost.cli.main import _COMMANDS
from fencepost.core.task import Cause, Definition, Outcome, Overlap, Retry
from fencepost.wire.schema import load_schema
from tests.docs.test_readme_facts import ROOT, rows_of

PAGES = ("guide.md", "dependencies.md")
GUIDE = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
# Shown where they belong better.
ELSEWHERE = {"down": "README.md", "status": "README.md"}


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]+", text))


@pytest.mark.parametrize("name", [name for name, _ in _COMMANDS])
def test_every_command_is_shown(name: str) -> None:
    page = (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8") if name in ELSEWHERE else GUIDE
    assert f"fencepost {name}" in page


@pytest.mark.parametrize("command", group.registered_commands, ids=lambda command: command.name)
def test_every_command_for_dead_letters_is_shown(command: object) -> None:
    assert f"fencepost dlq {command.name}" in GUIDE  # type: ignore[attr-defined]


def test_every_field_of_a_definition_is_named() -> None:
    # In files a schedule is given by its own keys, and the time limit without its unit.
    named = {item.name for item in (*fields(Definition), *fields(Retry))} - {"task", "schedule", "timeout_s"}
    assert named | {"cron", "every", "at", "anchor", "time_zone", "timeout"} <= words(GUIDE)


def test_every_field_of_a_trigger_and_of_a_control_is_named() -> None:
    control = load_schema("control")["properties"]
    asked = {name for name, field in control.items() if not field["description"].startswith("signal only")}
    named = set(load_schema("trigger")["properties"]) | asked
    assert named - {"v", "op"} <= words(GUIDE)
    assert set(control["op"]["enum"]) - {"signal"} <= words(GUIDE)


def test_everything_a_run_is_given_is_named() -> None:
    public = {name for name, _ in inspect.getmembers(RunContext) if not name.startswith("_")}
    assert {name for name in public if f"ctx.{name}" not in GUIDE} == set()


def test_every_method_of_an_app_is_named() -> None:
    public = {name for name, _ in inspect.getmembers(App, inspect.isfunction) if not name.startswith("_")}
    inner = {"handlers", "definitions", "declared", "rules"}  # for workers and tools
    assert {name for name in public - inner if f"app.{name}" not in GUIDE} == set()


def test_all_policies_and_ends_are_explained() -> None:
    assert [cells[0].strip("`") for cells in rows_of(GUIDE, "`overlap`")] == [item.value for item in Overlap]
    assert {item.value for item in (*Cause, *Outcome)} <= words(GUIDE)
