"""Asking for a grant and giving it back, on the side of a task; granting, on the side of the key's owner."""

from __future__ import annotations

from dataclasses import replace

from fencepost.core.commands import Command, DropClaim, PutClaim, PutGroup, Send
from fencepost.core.limits import Claim, Group, Limit, Permit, granting, group_id
from fencepost.core.making import new_history, with_state, with_waiting
from fencepost.core.ready import wants_to_start
from fencepost.core.signals import Ask, GiveBack, Grant
from fencepost.core.task import Status, Task

Stepped = tuple[Task, tuple[Command, ...]]


def follow(task: Task, now_ms: int) -> Stepped:
    """After any step of a task that has a limit, or had one: what it asked for fits what it wants now."""
    state, definition = task.state, task.definition
    permit = state.permit
    limit = None if definition is None or definition.broadcast else definition.limit  # its shards ask
    if state.status is Status.RUNNING:
        if permit is None or permit.epoch:
            return task, ()
        return with_state(task, replace(state, permit=replace(permit, epoch=state.epoch))), ()
    wants = limit is not None and (wants_to_start(task, now_ms) or (permit is not None and _will_want(task, now_ms)))
    commands: list[Command] = []
    if permit is not None and (permit.epoch or permit.limit != limit or not wants):
        commands.append(Send(group_id(permit.limit.key), GiveBack(permit.ticket)))
        permit = None
    next_seq = state.next_seq
    if permit is None and wants and limit is not None:
        permit = Permit(next_seq, limit)
        next_seq += 1
        commands.append(Send(group_id(limit.key), Ask(permit.ticket, limit.max_runs, limit.rate, limit.burst)))
        commands.append(new_history("asked", None, now_ms, {"limit": limit.key}))
    if not commands:
        return task, ()
    return with_state(task, replace(state, permit=permit, next_seq=next_seq)), tuple(commands)


def _will_want(task: Task, now_ms: int) -> bool:
    """Whether a task that was put together from its records wants to start once it is woken, which is now.

    Delayed work that was admitted is delayed again then; the place in line that it has is kept for that moment.
    """
    if not task.delayed or task.delayed[0].due_ms > now_ms or task.waiting:
        return False
    return wants_to_start(with_waiting(task, task.delayed[:1]), now_ms)


def granted(task: Task, signal: Grant, _sender: str, _now_ms: int) -> Stepped:
    """The task may start, if it still wants to: otherwise it has given back already what comes here."""
    permit = task.state.permit
    if permit is None or permit.ticket != signal.ticket or permit.granted:
        return task, ()
    return with_state(task, replace(task.state, permit=replace(permit, granted=True))), ()


def asked(task: Task, signal: Ask, sender: str, now_ms: int) -> Stepped:
    """A task asks under this key."""
    group = task.group or Group()
    if any(claim.task == sender and claim.ticket == signal.ticket for claim in group.claims):
        return task, ()
    limit = Limit(task.state.task, signal.max_runs, signal.rate, signal.burst)
    claim = Claim(group.claims[-1].number + 1 if group.claims else 1, sender, signal.ticket, limit, now_ms)
    group = replace(group, claims=(*group.claims, claim))
    task, commands = grant_due(replace(task, group=group), now_ms)
    # If it was granted at once the record of that takes the place of this one.
    return task, (PutClaim(claim), *commands)


def given_back(task: Task, signal: GiveBack, sender: str, now_ms: int) -> Stepped:
    """A run has ended, or a task does not want to start any more: the next in line may."""
    group = task.group
    gone = [claim for claim in group.claims if (claim.task, claim.ticket) == (sender, signal.ticket)] if group else []
    if group is None or not gone:
        return task, ()
    kept = replace(group, claims=tuple(claim for claim in group.claims if claim not in gone))
    task, commands = grant_due(replace(task, group=kept), now_ms)
    return task, (*(DropClaim(claim.number) for claim in gone), *commands)


def grant_due(task: Task, now_ms: int) -> Stepped:
    """Grant what can be granted now."""
    if task.group is None:
        return task, ()
    group, claims = granting(task.group, now_ms)
    commands: list[Command] = []
    for claim in claims:
        commands += (PutClaim(claim), Send(claim.task, Grant(claim.ticket)))
    if group.next_ms != task.group.next_ms:
        commands.append(PutGroup(group.next_ms))
    nothing = not group.claims and not group.next_ms
    return replace(task, group=None if nothing else group), tuple(commands)
