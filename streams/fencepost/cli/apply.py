"""`apply`: make the tasks topic say what files say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost.cli.failures import BadInput
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import emit, say
from fencepost.cli.taskfile import read_task_files
from fencepost.cli.view import newest
from fencepost.client import Client
from fencepost.codec import BadRecord
from fencepost.core.graph import circle
from fencepost.core.task import Definition
from fencepost.kafka.scan import scan
from fencepost.settings import Settings
from fencepost.wire.definition import definition_to_json, read_definition


@dataclass(frozen=True, slots=True)
class Difference:
    """What applying would do. `changed`: by task, the fields that differ as (field, now, then)."""

    created: tuple[Definition, ...]
    changed: tuple[tuple[Definition, tuple[tuple[str, Any, Any], ...]], ...]
    unchanged: tuple[str, ...]
    deleted: tuple[str, ...]
    others: tuple[str, ...]  # in the topic, in no file, and left alone


def apply(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="TOML files with [[task]] tables.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Delete tasks that are in none of the files.")] = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Define and change tasks as files say. All is checked before anything is written; what is equal is left alone."""
    definitions = read_task_files(files)
    settings = load_settings(config, bootstrap, namespace)
    with Client(settings) as client:
        known = _published(settings, client)
        difference = compare(definitions, known, prune)
        refuse_circle(definitions, known, difference.deleted)
        if not dry_run:
            client.apply([*difference.created, *(definition for definition, _ in difference.changed)])
            for task in difference.deleted:
                client.delete(task)
    if as_json:
        emit(_document(difference, dry_run))
    else:
        _show(difference, dry_run)


def compare(wanted: list[Definition], known: dict[str, Definition | None], prune: bool) -> Difference:
    """known: by task; None for a record that cannot be read, which counts as different."""
    created, changed, unchanged = [], [], []
    for definition in wanted:
        if definition.task not in known:
            created.append(definition)
        elif fields := _fields_that_differ(known[definition.task], definition):
            changed.append((definition, fields))
        else:
            unchanged.append(definition.task)
    # Shards are written by the owner of their task, and go with it.
    shards = {task for task, definition in known.items() if definition is not None and definition.shard_of}
    others = tuple(sorted(known.keys() - {definition.task for definition in wanted} - shards))
    return Difference(
        tuple(created), tuple(changed), tuple(unchanged), others if prune else (), () if prune else others
    )


def refuse_circle(wanted: list[Definition], known: dict[str, Definition | None], deleted: tuple[str, ...]) -> None:
    """Raises BadInput where tasks would run after one another in a circle, and none of them ever."""
    after = {task: definition.after for task, definition in known.items() if definition is not None}
    for task in deleted:
        after.pop(task, None)
    way = circle(after | {definition.task: definition.after for definition in wanted})
    if way is not None:
        raise BadInput(f"after: the tasks would run after one another in a circle: {' -> '.join(way)}")


def _published(settings: Settings, client: Client) -> dict[str, Definition | None]:
    _ = client.info  # says so when the namespace is not initialised
    known: dict[str, Definition | None] = {}
    for key, record in newest(scan(settings, client.topics.tasks)):
        try:
            known[key] = read_definition(record.key, record.value)[1]
        except BadRecord:
            known[key] = None
    return known


def _fields_that_differ(now: Definition | None, then: Definition) -> tuple[tuple[str, Any, Any], ...]:
    if now == then:
        return ()
    old = {} if now is None else definition_to_json(now)
    new = definition_to_json(then)
    names = sorted(old.keys() | new.keys())
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _document(difference: Difference, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "created": [definition_to_json(definition) for definition in difference.created],
        "changed": [
            {"task": definition.task, "fields": {name: {"from": old, "to": new} for name, old, new in changes}}
            for definition, changes in difference.changed
        ],
        "unchanged": list(difference.unchanged),
        "deleted": list(difference.deleted),
        "not_in_files": list(difference.others),
    }


def _show(difference: Difference, dry_run: bool) -> None:
    for definition in difference.created:
        say(f"+ {definition.task}")
    for definition, changes in difference.changed:
        say(f"~ {definition.task}")
        for name, old, new in changes:
            say(f"    {name}: {_text(old)} -> {_text(new)}")
    for task in difference.deleted:
        say(f"- {task}")
    counts = (
        f"{len(difference.created)} created, {len(difference.changed)} changed, {len(difference.unchanged)} unchanged, "
        f"{len(difference.deleted)} deleted"
    )
    left = len(difference.others)
    others = f"; {left} in no file were left alone (--prune deletes them)" if left else ""
    say(f"{'would be: ' if dry_run else ''}{counts}{others}")


def _text(value: Any) -> str:
    return "default" if value is None else str(value)
