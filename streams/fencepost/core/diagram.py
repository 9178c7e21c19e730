"""The page with the state diagram, made from the table of transitions so that the two cannot differ.

A test compares `docs/state-diagram.md` with `page()` and says how to write it again.
"""

from __future__ import annotations

from fencepost.core.events import Event
from fencepost.core.table import TABLE
from fencepost.core.task import Status

_PAGE = """\
# States of a task

<!-- Made from `core/table.py` by `core/diagram.py`; do not edit. -->

A task has the status of its run: `idle`, `running`, or `backoff` while its work waits for the next attempt. What waits
besides (buffered and delayed requests, the next slot) and whether it is paused or deleted stand beside the status.

```mermaid
{diagram}
```

What may happen when, and where it leads; `—` is illegal: the machine raises and changes nothing.

{table}
"""


def diagram() -> str:
    """The mermaid state diagram. What leaves the status as it is stands in the table only, for the eye's sake."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    for before in Status:
        for after in Status:
            names = [] if before is after else _events(before, after)
            if names:
                lines.append(f"    {before.value} --> {after.value}: {', '.join(names)}")
    return "\n".join(lines)


def table() -> str:
    """All pairs of event and status as a Markdown table."""
    lines = [f"| event | {' | '.join(status.value for status in Status)} |", "|---|" + "---|" * len(Status)]
    for event in _all_events():
        cells = [_leads_to(status, event) for status in Status]
        lines.append(f"| {event.__name__} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    return _PAGE.format(diagram=diagram(), table=table())


def _events(before: Status, after: Status) -> list[str]:
    return [event.__name__ for (status, event), to in TABLE.items() if status is before and after in to.leads_to]


def _all_events() -> list[type[Event]]:
    return list(dict.fromkeys(event for _, event in TABLE))


def _leads_to(status: Status, event: type[Event]) -> str:
    transition = TABLE.get((status, event))
    return "—" if transition is None else ", ".join(after.value for after in transition.leads_to)
