from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import BadRecord
from fencepost.core.batches import members_of
from fencepost.core.commands import Command, PutWork
from fencepost.core.ending import PAST_KEPT
from fencepost.core.events import Signalled
from fencepost.core.limits import Permit
from fencepost.core.links import Origin, When
from fencepost.core.machine import restored_task, step
from fencepost.core.making import short
from fencepost.core.place import Place
from fencepost.core.recent import KEPT, hash_of, remember
from fencepost.core.room import STATE_WORK_BYTES, escapes, needs_own_record
from fencepost.core.signals import UpstreamDone
from fencepost.core.task import (
    Attempt,
    Backfill,
    Cause,
    Definition,
    LastRun,
    OnResume,
    Outcome,
    Owed,
    PythonHandler,
    Run,
    Status,
    Task,
    TaskState,
    Work,
)
from fencepost.wire.limit import KEY_BYTES, read_limit
from fencepost.wire.schema import load_schema
from fencepost.wire.state import STATE_BYTES, decode_state, encode_state, state_stamp
from fencepost.wire.trigger import read_trigger
from fencepost.wire.work import check_checkpoint, decode_checkpoint, decode_work, encode_checkpoint, encode_work

T0 = 1_700_000_000_000
LANE = "worker-host-17-0123456789abcdef-lane-12"
NONCE = "0123456789abcdef0123456789abcdef"

times = st.integers(0, 253_402_300_799_999)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
works = st.builds(
    Work,
    seq=st.integers(0, 10**9),
    trigger_id=st.none() | texts,
    slot_ms=st.none() | times,
    due_ms=times,
    arrived_ms=times,
    payload=st.none() | st.integers(0, 9) | texts | st.dictionaries(texts, texts, max_size=2),
    headers=st.none() | st.dictionaries(st.text("abc", min_size=1), texts, max_size=2),
    priority=st.integers(0, 9),
    offset=st.integers(-1, 2**60),
    attempt=st.integers(0, 5000),
    losses=st.integers(0, 9),
    resumed=st.booleans(),
)
runs = st.builds(
    Run,
    st.integers(1, 10**9),
    st.integers(1, 5000),
    st.just(LANE),
    st.just(NONCE),
    st.sampled_from([3.0, 15.0, 3600.0]),
    times,
    st.sampled_from([None, "cancelled", "timed_out"]),
    st.none() | texts.map(short),
)
lasts = st.builds(LastRun, st.integers(1, 10**9), st.sampled_from(Outcome), st.none() | st.sampled_from(Cause), times)


@st.composite
def states(draw: st.DrawFn) -> TaskState:
    status = draw(st.sampled_from(Status))
    recent_ms = draw(st.lists(st.integers(0, 1440), max_size=5))
    return TaskState(
        task=draw(st.sampled_from(["a", "задача-1", '"\\'])),
        epoch=draw(st.integers(0, 10**9)),
        status=status,
        run=draw(runs) if status is Status.RUNNING else None,
        work=None if status is Status.IDLE else draw(works),
        retry_at_ms=draw(times) if status is Status.BACKOFF else None,
        not_before_ms=draw(times),
        next_slot_ms=draw(st.none() | times),
        last_slot_ms=draw(st.just(-1) | times),
        schedule_fingerprint=draw(st.none() | texts),
        paused=(paused := draw(st.booleans())),
        pause_reason=draw(st.none() | texts) if paused else None,
        defined_paused=draw(st.booleans()),
        deleted=draw(st.booleans()),
        last=draw(st.none() | lasts),
        trigger_offset=draw(st.integers(-1, 2**60)),
        control_offset=draw(st.integers(-1, 2**60)),
        recent_ids=tuple((hash_of(str(n)), T0 + at_s * 60_000) for n, at_s in enumerate(recent_ms)),
        next_seq=draw(st.integers(1, 10**9)),
    )


@given(states())
def test_a_state_goes_through_its_record_unharmed(state: TaskState) -> None:
    value = encode_state(state, LANE, NONCE)
    assert decode_state(value) == state
    assert state_stamp(value) == (LANE, NONCE)


@given(works, st.booleans())
def test_work_goes_through_its_record_unharmed(work: Work, own: bool) -> None:
    work = replace(work, own_record=own)
    assert decode_work(encode_work("a", work, LANE, NONCE)) == work


def test_a_large_payload_stays_in_the_record_of_its_own() -> None:
    work = Work(7, "id", payload="x" * 200_000, headers={"a": "b"}, own_record=True, attempt=1)
    run = Run(3, 1, LANE, NONCE, 15.0, T0)
    state = TaskState("a", 3, Status.RUNNING, run, work, next_seq=8)
    value = encode_state(state, LANE, NONCE)
    assert len(value) < 600
    assert json.loads(value)["work"]["payload_in_record"] is True
    read = decode_state(value)
    assert read.work == replace(work, trigger_id=None, payload=None, headers=None)
    record = decode_work(encode_work("a", replace(work, attempt=0), LANE, NONCE))
    assert restored_task(read, [record]).state == state


def test_where_a_request_comes_from_is_kept_with_it_and_out_of_the_state_where_it_is_large() -> None:
    origin = Origin("c", ("a", "b"), {"a": {"outcome": "succeeded", "result": "x" * 2000}})
    for large in (False, True):
        work = Work(7, None, None, 0, T0, own_record=large, origin=origin)
        state = TaskState("t", 3, Status.BACKOFF, None, replace(work, attempt=1), T0)
        value = encode_state(state, LANE, NONCE)
        assert ("cycle" in json.loads(value)["work"]) is not large
        read = decode_state(value)
        assert restored_task(read, [decode_work(encode_work("t", work, LANE, NONCE))] if large else []).state == state


characters = st.sampled_from('"\\') | st.characters(exclude_categories=["Cs", "Cc"])


@given(characters, characters, st.booleans())
def test_no_state_is_larger_than_four_kibibytes(character: str, of_key: str, batched: bool) -> None:
    """Everything at its longest at once, made of whatever takes most room as JSON."""
    fill = filled(character, 255)
    body = {"id": fill, "payload": ""}
    room = STATE_WORK_BYTES - len(json.dumps(body, ensure_ascii=False).encode()) - len(fill)
    body["payload"] = (character * max(room, 0)).encode()[: max(room, 0)].decode("utf-8", "ignore")
    trigger = read_trigger(fill.encode(), json.dumps(body, ensure_ascii=False).encode(), None, 2**60, T0)
    large = needs_own_record(trigger.size, fill)
    recent: Any = ()
    for number in range(KEPT):
        recent = remember(recent, str(number), T0 + number * 860_000)
    past = tuple([Attempt(10**9, Outcome.INTERRUPTED, Cause.NEIGHBOUR.value, T0)] * PAST_KEPT)
    members = members_of(tuple([Work(10**9 - 2 * number) for number in range(99)]), 99)
    alone = Work(10**9, fill, T0, T0, T0, trigger.payload, None, 9, 2**60, 10**6, 10**6, True, large, 10**6, T0, past)
    alone = replace(alone, asked_by=f"rerun of epoch {10**9}")
    work = replace(alone, own_record=True, members=members) if batched else alone
    state = TaskState(
        fill,
        10**9,
        Status.RUNNING,
        Run(10**9, 10**6, LANE, NONCE, 31_557_600.0, T0, "cancelled", short(fill)),
        work,
        None,
        T0,
        T0,
        T0,
        "f" * 64,
        True,
        short(fill),
        True,
        True,
        LastRun(10**9, Outcome.INTERRUPTED, Cause.NEIGHBOUR, T0),
        2**60,
        2**60,
        recent,
        10**9,
        None,
        None,
        Owed(T0, T0),
        OnResume.LATEST,
        Backfill("b" * 16, T0, T0, 10**6),
    )
    assert len(encode_state(state, LANE, NONCE)) <= STATE_BYTES
    room = STATE_WORK_BYTES - escapes(fill)
    cycle = filled(character, 255)
    while len(json.dumps({"payload": "", "cycle": cycle}, ensure_ascii=False).encode()) > room:
        cycle = cycle[:-1]
    body = {"payload": "", "cycle": cycle}
    body["payload"] = "x" * (room - len(json.dumps(body, ensure_ascii=False).encode()))
    trigger = read_trigger(fill.encode(), json.dumps(body, ensure_ascii=False).encode(), None, 2**60, T0)
    assert not needs_own_record(trigger.size, fill)
    works = [
        replace(alone, trigger_id=None, payload=trigger.payload, own_record=False, origin=Origin(cycle)),
        *(
            replace(alone, trigger_id=None, due_ms=0, payload=None, own_record=False, offset=-1, origin=origin)
            for origin in joined(character, fill)
        ),
    ]
    # A task that is deleted has no schedule, so not everything goes together.
    permit = Permit(
        10**9, read_limit({"key": key_of(of_key), "max_runs": 10**6, "rate": "1000/10m", "burst": 100}), True
    )
    place = Place(10**6, "p" * 32, "s" * 10, True)
    for one in works:
        value = encode_state(replace(state, work=one, deleted=False, permit=permit, place=place), LANE, NONCE)
        assert len(value) <= STATE_BYTES
        assert decode_state(value).work is not None


def filled(character: str, size: int) -> str:
    """As many of this character as have so many bytes."""
    return character * (size // len(character.encode()))


def key_of(character: str) -> str:
    """The longest key of a limit made of this character."""
    return filled(character, KEY_BYTES // (1 + escapes(character)))


@pytest.mark.parametrize("character", ['"', "\\", "k", "ключ"])
def test_a_key_of_a_limit_that_would_take_too_much_room_in_states_is_refused(character: str) -> None:
    read_limit({"key": key_of(character), "max_runs": 1})
    with pytest.raises(BadRecord, match="allowed: at most 240"):
        read_limit({"key": key_of(character) + character, "max_runs": 1})


def joined(character: str, child: str) -> list[Origin]:
    """Where requests come from that run after others, as far as that stands in the state: cycles, ways, parents."""
    found = []
    for parents, cycle, way in product((1, 2, 3, 4, 20), (character * 10, character * 60, character * 120), (1, 50)):
        names = tuple([f"{character}{number}" for number in range(parents)])
        task = Task(TaskState(child), Definition(child, PythonHandler("f"), after=names, when=When.ALL_DONE))
        commands: tuple[Command, ...] = ()
        for number, parent in enumerate(names):
            told = UpstreamDone(cycle, "interrupted", (character,) * way, 10**9, result_dropped="it is too large " * 4)
            task, commands = step(task, Signalled(told, number, parent), T0)
        (work,) = [command.work for command in commands if isinstance(command, PutWork)]
        if not work.own_record and work.origin is not None:
            found.append(work.origin)
    return found


# -- what a worker must leave alone -----------------------------------------------------------------------------------

GOOD = json.loads(encode_state(TaskState("a", 3, next_slot_ms=T0), LANE, NONCE))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"v": 2}, "v"),
        ({"v": None}, "v"),
        ({"colour": "red"}, "colour"),
        ({"status": "asleep"}, "status"),
        ({"status": "running"}, "run"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": "3"}, "epoch"),
        ({"next_slot": "soon"}, "next_slot"),
        ({"next_slot": "2026-13-01T00:00:00.000Z"}, "next_slot"),
        ({"work": {"seq": 1, "colour": "red"}}, "work.colour"),
        ({"recent_ids": {"since": "2026-01-01T00:00:00Z", "taken": "zz"}}, "recent_ids.taken"),
    ],
    ids=str,
)
def test_i13_a_state_that_cannot_be_read_whole_is_not_read(change: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRecord) as raised:
        decode_state(json.dumps({**GOOD, **change}).encode())
    assert raised.value.field == field


def test_i13_a_newer_state_still_says_who_wrote_it() -> None:
    assert state_stamp(json.dumps({**GOOD, "v": 2, "colour": "red"}).encode()) == (LANE, NONCE)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b"{", b'{"v":1}', b'{"lane":1,"nonce":2}'])
def test_what_is_no_state_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_state(value)
    with pytest.raises(BadRecord):
        decode_work(value)
    with pytest.raises(BadRecord):
        decode_checkpoint(value)
    with pytest.raises(BadRecord):
        state_stamp(value)


def test_a_checkpoint_goes_through_its_record_unharmed() -> None:
    value = encode_checkpoint("a", {"row": [1, 2]}, LANE, NONCE, 4)
    assert decode_checkpoint(value) == {"row": [1, 2]}
    assert state_stamp(value) == (LANE, NONCE)


@pytest.mark.parametrize("data", ["x" * 65_537, {1, 2}, float("inf")], ids=["large", "set", "inf"])
def test_a_checkpoint_that_cannot_be_kept_is_refused_before_it_is_an_event(data: object) -> None:
    with pytest.raises(BadRecord, match="checkpoint"):
        check_checkpoint(data)
    check_checkpoint("x" * 65_000)


def test_work_has_the_same_fields_wherever_it_is_kept_or_told() -> None:
    """A field that is missing from one of them makes that record unreadable, and its task stand still."""
    alone = set(load_schema("work")["properties"]) - {"v", "task", "lane", "nonce", "own_record"}
    for record, own in (("state", {"payload_in_record", "batch"}), ("fan", set()), ("signal", {"own_record"})):
        fields = set(load_schema(record)["properties"]["work"]["properties"])
        assert alone <= fields, record
        assert fields - alone <= own, record
