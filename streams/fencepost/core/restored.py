"""A task put together again from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fencepost.core.limits import Group
from fencepost.core.links import Fan, Join, Links
from fencepost.core.making import new_task_record
from fencepost.core.rank import line_up
from fencepost.core.task import Task, TaskState, Work


def restored_task(
    state: TaskState,
    works: Sequence[Work] = (),
    checkpoint: Any = None,
    links: Links | None = None,
    joins: Sequence[Join] = (),
    fans: Sequence[Fan] = (),
    group: Group | None = None,
    left_out: tuple[int, ...] = (),
) -> Task:
    """The task that wrote `state`, the `works` (records of their own that were not dropped) and the checkpoint.

    The record of the work that is under way gives back the payload that was too large for the state. Delayed work waits
    for its time again, even if that has passed: the next `Woken` admits it. The definition comes next, by
    `Defined(definition, restored=True)`, which notices a schedule that changed meanwhile.
    """
    waiting: list[Work] = []
    delayed: list[Work] = []
    under_way = state.work
    members = {} if under_way is None else {member.seq: member for member in under_way.members}
    for work in works:
        if work.seq in members:
            members[work.seq] = work
        elif under_way is not None and work.seq == under_way.seq:
            filled = replace(under_way, trigger_id=work.trigger_id, payload=work.payload, headers=work.headers)
            filled = replace(filled, origin=work.origin)
            state = replace(state, work=filled)
        elif work.due_ms:
            delayed.append(work)
        else:
            waiting.append(work)
    if members and state.work is not None:
        state = replace(state, work=replace(state.work, members=tuple(members.values())))
    delayed.sort(key=lambda work: (work.due_ms, work.seq))
    if joins:
        links = replace(links or Links(), joins=tuple(sorted(joins, key=lambda join: join.number)))
    if fans:
        links = replace(links or Links(), fans=tuple(sorted(fans, key=lambda fan: fan.number)))
    return new_task_record(state, None, line_up(waiting), checkpoint, tuple(delayed), links, group, left_out)
