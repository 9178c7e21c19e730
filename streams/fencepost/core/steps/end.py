"""A run ends: by itself, or because it was stopped from outside."""

from __future__ import annotations

from typing import Any

from fencepost.core.backoff import backoff_ms
from fencepost.core.commands import Command
from fencepost.core.ending import DROP_CHECKPOINT, finish, history_of_end, past_with, settled_at_ms
from fencepost.core.events import Ended, Interrupted
from fencepost.core.making import after_loss, bounded, ended_run, ended_task, new_last
from fencepost.core.retrying import why_not_again
from fencepost.core.steps.start import current_run
from fencepost.core.task import (
    BACKOFF,
    CANCELLED,
    INTERRUPTED,
    SUCCEEDED,
    Cause,
    Definition,
    OnInterruption,
    Outcome,
    Retry,
    Run,
    Task,
    Work,
)
from fencepost.core.time_limits import over_by_ms
from fencepost.core.times import format_ms

_DEFAULT_LOSSES = 3


def ended(task: Task, event: Ended, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The run is over. What it was asked to stop for goes before what it says of itself."""
    run = current_run(task, event.epoch, "Ended")
    work = task.state.work
    assert work is not None
    outcome = event.outcome if run.stopping is None else Outcome(run.stopping)
    fields: dict[str, Any] = {}
    if run.stop_cause is not None:
        fields["cause"] = run.stop_cause
    elif event.limit is not None:
        fields["cause"] = event.limit
    if event.error is not None:
        fields["error"] = bounded(event.error)
    if outcome is SUCCEEDED and event.result is not None:
        fields["result"] = event.result
    told, record = history_of_end(run, work, outcome, fields, now_ms)
    if outcome is SUCCEEDED or outcome is CANCELLED:
        return finish(task, outcome, None, now_ms, record)
    definition = task.definition
    delay_ms = 0 if definition is None else backoff_ms(definition.retry, work.attempt, event.spread)
    reason = _why_given_up(definition, work, event, outcome, now_ms + delay_ms)
    if definition is None or reason is not None:
        told["given_up"] = reason
        return finish(task, outcome, None, now_ms, record, reason, event.error)
    resumed = definition.on_interruption is OnInterruption.RESUME and task.checkpoint is not None
    past = past_with(work, run, outcome, event.limit, now_ms)
    work = after_loss(work, work.attempt, work.losses, resumed, past)
    return _try_again(task, run, work, outcome, None, now_ms, delay_ms, told, record)


def _why_given_up(
    definition: Definition | None, work: Work, event: Ended, outcome: Outcome, retry_at_ms: int
) -> str | None:
    """The reason for which a run that did not succeed is not tried again; None: it is."""
    reason = f"{outcome.value} in attempt {work.attempt} of {work.attempt}"
    if definition is None or work.attempt >= definition.retry.attempts:
        return reason
    why_not = why_not_again(definition.retry, event)
    if why_not is not None:
        return f"{outcome.value} in attempt {work.attempt}: {why_not}"
    return _over_in_total(definition, work, retry_at_ms)


def _over_in_total(definition: Definition, work: Work, retry_at_ms: int) -> str | None:
    over_ms = over_by_ms(definition, work)
    if over_ms is None or retry_at_ms < over_ms:
        return None
    return f"no time left for another attempt: {definition.total_timeout_s:g} s for all of them"


def interrupted(task: Task, event: Interrupted, now_ms: int) -> tuple[Task, tuple[Command, ...]]:
    """The run was stopped from outside: that uses up no attempt, but too many lost workers end the work."""
    run = current_run(task, event.epoch, "Interrupted")
    work, definition = task.state.work, task.definition
    assert work is not None
    if run.stopping == "cancelled":
        # Somebody wanted it cancelled and it is certainly gone: that it went another way changes nothing.
        fields = {"cause": run.stop_cause or event.cause.value, "ran_on": run.lane}
        _, record = history_of_end(run, work, CANCELLED, fields, now_ms)
        return finish(task, CANCELLED, event.cause, now_ms, record)
    fields = {"cause": event.cause.value, "ran_on": run.lane}
    if event.node_fenced is not None:
        fields["node_fenced"] = event.node_fenced.value
    told, record = history_of_end(run, work, INTERRUPTED, fields, now_ms)
    policy = OnInterruption.RETRY if definition is None else definition.on_interruption
    if policy is OnInterruption.SKIP or task.state.deleted:
        # Said in so many words: an end that tells of nothing that follows would look like a request that got lost.
        told["dropped"] = "deleted" if task.state.deleted else "on_interruption = skip"
        return finish(task, INTERRUPTED, event.cause, now_ms, record)
    losses = work.losses + (event.cause is Cause.LOST)
    if losses > (_DEFAULT_LOSSES if definition is None else definition.max_losses):
        told["given_up"] = f"lost with its worker {losses} times"
        return finish(task, INTERRUPTED, event.cause, now_ms, record, told["given_up"])
    resumed = policy is OnInterruption.RESUME and task.checkpoint is not None
    # The first loss may be anybody's fault; from the second on, the work may be what takes workers down.
    retry = Retry() if definition is None else definition.retry
    delay_ms = backoff_ms(retry, losses - 1, event.spread) if event.cause is Cause.LOST and losses > 1 else 0
    over = None if definition is None else _over_in_total(definition, work, now_ms + delay_ms)
    if over is not None:
        told["given_up"] = over
        return finish(task, INTERRUPTED, event.cause, now_ms, record, over)
    past = past_with(work, run, INTERRUPTED, event.cause.value, now_ms)
    work = after_loss(work, work.attempt - 1, losses, resumed, past)
    return _try_again(task, run, work, INTERRUPTED, event.cause, now_ms, delay_ms, told, record)


def _try_again(
    task: Task,
    run: Run,
    work: Work,
    outcome: Outcome,
    cause: Cause | None,
    now_ms: int,
    delay_ms: int,
    told: dict[str, Any],
    record: Command,
) -> tuple[Task, tuple[Command, ...]]:
    """The same work waits for its next attempt."""
    not_before_ms = settled_at_ms(task, now_ms)
    retry_at_ms = now_ms + delay_ms
    told["retry_at"] = format_ms(max(retry_at_ms, not_before_ms))
    last = new_last(run.epoch, outcome, cause, now_ms)
    state = ended_run(task.state, BACKOFF, None, work, retry_at_ms, not_before_ms, last)
    if work.resumed or task.checkpoint is None:
        return ended_task(task, state, task.checkpoint), (record,)
    return ended_task(task, state, None), (record, DROP_CHECKPOINT)
