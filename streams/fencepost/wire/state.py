"""The state of a task, as its owner keeps it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.evolve import builder
from fencepost.core.place import Place
from fencepost.core.recent import Recent
from fencepost.core.task import Backfill, Cause, LastRun, OnResume, Outcome, Owed, Run, Status, TaskState, Work
from fencepost.core.times import format_ms
from fencepost.wire.limit import permit_to_json, read_permit
from fencepost.wire.schema import read_own
from fencepost.wire.times import read_time
from fencepost.wire.work import read_work, work_fields

VERSION: Final = 1
STATE_BYTES: Final = 4096

_new_state = builder(TaskState)
_new_run = builder(Run)
_new_last = builder(LastRun)
_IDLE: Final = Status.IDLE
_STATUS: Final = {status.value: status for status in Status}
_OUTCOME: Final = {outcome.value: outcome for outcome in Outcome}
_ON_RESUME: Final = {choice.value: choice for choice in OnResume}
_CAUSE: Final = {cause.value: cause for cause in Cause}


def encode_state(state: TaskState, lane: str, nonce: str) -> bytes:
    """The value of a state record; its key is the task ID. What is at its default is left out."""
    body: dict[str, Any] = {
        "v": VERSION,
        "task": state.task,
        "lane": lane,
        "nonce": nonce,
        "epoch": state.epoch,
        "status": state.status._value_,
        "next_seq": state.next_seq,
    }
    if state.trigger_offset >= 0:
        body["trigger_offset"] = state.trigger_offset
    if state.run is not None:
        body["run"] = _run_fields(state.run)
    if state.work is not None:
        body["work"] = _work_in_state(state.work)
    last = state.last
    if last is not None:
        body["last"] = _last_fields(last)
    if state.next_slot_ms is not None:
        body["next_slot"] = format_ms(state.next_slot_ms)
    if state.schedule_fingerprint is not None:
        body["schedule"] = state.schedule_fingerprint
    if state.last_slot_ms >= 0:
        body["last_slot"] = format_ms(state.last_slot_ms)
    if state.retry_at_ms is not None:
        body["retry_at"] = format_ms(state.retry_at_ms)
    if state.not_before_ms:
        body["not_before"] = format_ms(state.not_before_ms)
    if state.control_offset >= 0:
        body["control_offset"] = state.control_offset
    if state.recent_ids:
        body["recent_ids"] = _recent_fields(state.recent_ids)
    if state.permit is not None:
        body["permit"] = permit_to_json(state.permit)
    if state.place is not None:
        body["place"] = _place_fields(state.place)
    if state.catching is not None:
        body["catching"] = f"{format_ms(state.catching.next_ms)} {format_ms(state.catching.until_ms)}"
    if state.backfill is not None:
        body["backfill"] = _backfill_text(state.backfill)
    if state.cancelled_to >= 0:
        body["cancelled_to"] = state.cancelled_to
    if state.paused or state.defined_paused or state.deleted:
        _add_flags(body, state)
    value = dumps(body)
    return value if len(value) <= STATE_BYTES else _shortened(body)


def _shortened(body: dict[str, Any]) -> bytes:
    """Without so much of what is only for people that it has room: the oldest past runs of its work first."""
    value = dumps(body)
    work = body.get("work", {})
    while len(value) > STATE_BYTES and "past" in work:
        work["past"] = work["past"][1:]
        if not work["past"]:
            del work["past"]
        value = dumps(body)
    for fields, name in ((body, "pause_reason"), (body.get("run", {}), "stop_cause")):
        if len(value) > STATE_BYTES and fields.pop(name, None) is not None:
            value = dumps(body)
    return value


def decode_state(value: bytes) -> TaskState:
    """The state, with the payload of its work missing where that has a record of its own. Raises BadRecord."""
    body = read_own("state", value, VERSION)
    run, work, last, recent = body.get("run"), body.get("work"), body.get("last"), body.get("recent_ids")
    return _new_state(
        body["task"],
        body["epoch"],
        _STATUS[body["status"]],
        None if run is None else _read_run(run),
        None if work is None else read_work(work, "payload_in_record", "work."),
        _time_or(body, "retry_at", None),
        _time_or(body, "not_before", 0),
        _time_or(body, "next_slot", None),
        _time_or(body, "last_slot", -1),
        None if (schedule := body.get("schedule")) is None else _shared(schedule),
        body.get("paused", False),
        body.get("pause_reason"),
        body.get("defined_paused", False),
        body.get("deleted", False),
        None if last is None else _read_last(last),
        body.get("trigger_offset", -1),
        body.get("control_offset", -1),
        () if recent is None else _read_recent(recent),
        body["next_seq"],
        None if (permit := body.get("permit")) is None else read_permit(permit),
        None if (place := body.get("place")) is None else Place(**place),
        None if (catching := body.get("catching")) is None else _read_owed(catching),
        _ON_RESUME[body["on_resume"]] if "on_resume" in body else OnResume.MISS,
        None if (backfill := body.get("backfill")) is None else _read_backfill(backfill),
        body.get("cancelled_to", -1),
    )


def state_stamp(value: bytes) -> tuple[str, str]:
    """(lane, nonce) that a record was written by; the rest is not looked at, so any version does. Raises BadRecord."""
    body = loads_own(value)
    if type(body) is not dict or type(body.get("lane")) is not str or type(body.get("nonce")) is not str:
        raise BadRecord("a record of the state topic names lane and nonce", "nonce")
    return body["lane"], body["nonce"]


def _run_fields(run: Run) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "epoch": run.epoch,
        "attempt": run.attempt,
        "lane": run.lane,
        "nonce": run.nonce,
        "lease_ttl_s": run.lease_ttl_s,
        "started": format_ms(run.started_ms),
    }
    if run.stopping is not None:
        fields["stopping"] = run.stopping
    if run.stop_cause is not None:
        fields["stop_cause"] = run.stop_cause
    return fields


def _last_fields(last: LastRun) -> dict[str, Any]:
    ended = format_ms(last.ended_ms)
    fields: dict[str, Any] = {"epoch": last.epoch, "outcome": last.outcome._value_, "ended": ended}
    if last.cause is not None:
        fields["cause"] = last.cause._value_
    return fields


def _work_in_state(work: Work) -> dict[str, Any]:
    """A large payload, and what came with it, stays in the record of its own; the state only says so."""
    fields = work_fields(work)
    if work.own_record:
        for name in ("trigger", "payload", "headers", "cycle", "path", "upstream", "shard"):
            fields.pop(name, None)
        fields["payload_in_record"] = True
    return fields


def _place_fields(place: Place) -> dict[str, Any]:
    fields: dict[str, Any] = {"number": place.number}
    if place.pool is not None:
        fields["pool"] = place.pool
    if place.sent is not None:
        fields["sent"] = place.sent
    for name in ("recalled", "left", "spoken"):
        if getattr(place, name):
            fields[name] = True
    return fields


def _add_flags(body: dict[str, Any], state: TaskState) -> None:
    if state.paused:
        body["paused"] = True
        if state.pause_reason is not None:
            body["pause_reason"] = state.pause_reason
        if state.on_resume is not OnResume.MISS:
            body["on_resume"] = state.on_resume.value
    if state.defined_paused:
        body["defined_paused"] = True
    if state.deleted:
        body["deleted"] = True


def _backfill_text(backfill: Backfill) -> str:
    text = f"{backfill.id} {format_ms(backfill.next_ms)} {format_ms(backfill.until_ms)} {backfill.done}"
    if backfill.max_runs == 1:
        return text
    return f"{text} {backfill.max_runs} {backfill.succeeded} {backfill.failed} {backfill.skipped}"


def _read_backfill(text: str) -> Backfill:
    backfill_id, following, last, *numbers = text.split(" ")
    return Backfill(backfill_id, read_time(following, "backfill"), read_time(last, "backfill"), *map(int, numbers))


def _read_owed(text: str) -> Owed:
    first, last = text.split(" ")
    return Owed(read_time(first, "catching"), read_time(last, "catching"))


def _recent_fields(recent: Recent) -> dict[str, str]:
    """All times are within a day, so minutes after the first keep a hundred of them below 2 KiB."""
    since_ms = min(at_ms for _, at_ms in recent)
    taken = " ".join([f"{hashed}+{(at_ms - since_ms) // 60_000}" for hashed, at_ms in recent])
    return {"since": format_ms(since_ms), "taken": taken}


def _read_recent(body: dict[str, str]) -> Recent:
    since_ms = read_time(body["since"], "recent_ids.since")
    return tuple([(entry[:10], since_ms + int(entry[11:]) * 60_000) for entry in body["taken"].split(" ")])


def _read_run(body: dict[str, Any]) -> Run:
    return _new_run(
        body["epoch"],
        body["attempt"],
        body["lane"],
        body["nonce"],
        float(body["lease_ttl_s"]),
        read_time(body["started"], "run.started"),
        body.get("stopping"),
        body.get("stop_cause"),
    )


def _read_last(body: dict[str, Any]) -> LastRun:
    cause = body.get("cause")
    ended_ms = read_time(body["ended"], "last.ended")
    return _new_last(body["epoch"], _OUTCOME[body["outcome"]], None if cause is None else _CAUSE[cause], ended_ms)


@lru_cache(maxsize=65_536)
def _shared(text: str) -> str:
    """One object for equal texts: a million states have few different schedules."""
    return text


def _time_or(body: dict[str, Any], name: str, default: Any) -> Any:
    text = body.get(name)
    return default if text is None else read_time(text, name)
