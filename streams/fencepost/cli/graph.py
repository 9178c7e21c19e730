"""`graph`: which task runs after which, from the definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fencepost.cli.failures import Failure
from fencepost.cli.options import Bootstrap, Config, Json, Namespace, load_settings
from fencepost.cli.output import emit, say
from fencepost.cli.view import describe_schedule, load_tasks
from fencepost.core.graph import children_of, circle, in_order, related
from fencepost.core.task import Definition


def graph(
    task: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this task, what it runs after and what runs after it.")
    ] = None,
    app: Annotated[str | None, typer.Option("--app", help="Also what this app declares (module:attribute).")] = None,
    config: Config = None,
    bootstrap: Bootstrap = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Show which task runs after which. Exit code 1 if it goes in a circle, or for an ID that is in no graph."""
    settings = load_settings(config, bootstrap, namespace, app=app)
    views = load_tasks(settings)
    defined = {name: view.definition for name, view in views.items() if view.definition is not None}
    document = draw(defined, task)
    if as_json:
        emit(document)
    else:
        _show(document)
    if document["circle"] is not None:
        raise Failure(f"the tasks run after one another in a circle: {' -> '.join(document['circle'])}")
    if task is not None and not document["tasks"]:
        raise Failure(f"no task {task!r} is defined, and none runs after it")


def draw(defined: Mapping[str, Definition], only: str | None = None) -> dict[str, Any]:
    """The graph as JSON values: the tasks with an edge (or `only` and those related to it), parents first."""
    after = {task: definition.after for task, definition in defined.items() if definition.after}
    children = children_of(after)
    names = in_order(after)
    if only is not None:
        shown = related(after, only)
        names = [task for task in names if task in shown] or [task for task in (only,) if task in defined]
    tasks = []
    for task in names:
        definition = defined.get(task)
        tasks.append(
            {
                "task": task,
                "defined": definition is not None,
                "after": [] if definition is None else list(definition.after),
                "when": None if definition is None or not definition.after else definition.when.value,
                "schedule": None if definition is None else describe_schedule(definition.schedule),
                "children": list(children.get(task, ())),
                "shards": 0 if definition is None else definition.shards,
                "map": None if definition is None or not definition.map else definition.map,
                "pool": None if definition is None else definition.pool,
                "broadcast": definition is not None and definition.broadcast,
            }
        )
    way = circle(after)
    return {"tasks": tasks, "circle": None if way is None else list(way)}


def _show(document: Mapping[str, Any]) -> None:
    if not document["tasks"]:
        say("no task runs after another")
    for item in document["tasks"]:
        told = [item["task"]]
        if not item["defined"]:
            told.append("(not defined)")
        if item["schedule"] is not None:
            told.append(f"[{item['schedule']}]")
        if item["after"]:
            told.append(f"after {', '.join(item['after'])}")
        if item["shards"]:
            told.append(f"in {item['shards']} shards")
        if item["map"] is not None:
            told.append(f"a shard for each item of {item['map']}")
        if item["pool"] is not None:
            told.append(f"in pool {item['pool']}")
        if item["broadcast"]:
            told.append("on every worker")
        if item["when"] not in (None, "all_succeeded"):
            told.append(f"({item['when']})")
        say("  ".join(told))
