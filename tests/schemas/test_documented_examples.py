"""The page about records: each example is what the schemas and the code say, and no record is without one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.task import Definition
from fencepost.resources import schemas_dir
from fencepost.wire.alert import decode_alert
from fencepost.wire.control import read_control
from fencepost.wire.dead_letter import decode_dead_letter
from fencepost.wire.definition import read_definition
from fencepost.wire.fan import decode_fan
from fencepost.wire.floor import decode_floor
from fencepost.wire.history import decode_history
from fencepost.wire.left_out import decode_left_out
from fencepost.wire.limit import decode_claim, decode_group
from fencepost.wire.links import decode_join, decode_links
from fencepost.wire.log import decode_log
from fencepost.wire.owners import decode_fence, decode_renewal
from fencepost.wire.schema import check, load_schema
from fencepost.wire.signal import read_signal
from fencepost.wire.state import decode_state
from fencepost.wire.trigger import read_trigger
from fencepost.wire.work import decode_checkpoint, decode_work
from fencepost.wire.worker_info import decode_worker_info

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
EXAMPLES = re.findall(r"<!-- schema: (\w+) -->\n```json\n(.*?)```", PAGE, re.DOTALL)

READ: dict[str, Callable[[bytes], Any]] = {
    "claim": decode_claim,
    "group": decode_group,
    "trigger": lambda value: read_trigger(None if b'"task"' in value else b"report", value, None, 0, 0),
    "control": lambda value: read_control(b"report", value, 0),
    "definition": lambda value: read_definition(b"report", value),
    "state": decode_state,
    "signal": lambda value: read_signal(json.loads(value), len(value)),
    "left_out": decode_left_out,
    "links": decode_links,
    "join": decode_join,
    "fan": decode_fan,
    "work": decode_work,
    "checkpoint": decode_checkpoint,
    "floor": decode_floor,
    "fence": decode_fence,
    "lease": decode_renewal,
    "history": decode_history,
    "dead_letter": decode_dead_letter,
    "worker_info": decode_worker_info,
    "log": decode_log,
    "alert": decode_alert,
}


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[f"{name} {n}" for n, (name, _) in enumerate(EXAMPLES)])
def test_each_example_is_taken(name: str, text: str) -> None:
    check(name, json.loads(text))
    assert READ[name](text.encode())


def test_every_schema_has_an_example_and_says_what_it_is() -> None:
    names = {path.stem for path in schemas_dir().glob("*.json")}
    assert names == {name for name, _ in EXAMPLES}
    for name in names:
        schema = load_schema(name)
        assert schema["$id"] == f"urn:fencepost:{name.replace('_', '-')}:1"
        assert schema["title"]
        assert schema["description"]
        assert schema["additionalProperties"] is False


def test_every_json_block_is_checked() -> None:
    assert PAGE.count("```json") == len(EXAMPLES)


@pytest.mark.parametrize("name", ["trigger", "definition"])
def test_every_field_of_what_people_write_is_explained(name: str) -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert set(load_schema(name)["properties"]) - {"v", "task"} <= documented


def test_the_definition_schema_has_the_fields_of_the_record() -> None:
    assert set(load_schema("definition")["properties"]) - {"v"} == set(Definition.__dataclass_fields__)


def test_the_history_schema_knows_every_kind_the_page_has() -> None:
    kinds = load_schema("history")["properties"]["kind"]["enum"]
    table = PAGE[PAGE.index("| kind | says |") :]
    assert all(f"`{kind}`" in table for kind in kinds)
