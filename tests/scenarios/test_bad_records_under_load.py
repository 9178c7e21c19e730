"""A thousand records that cannot be taken, of every kind there is, in the middle of good ones."""

from __future__ import annotations

import random
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Message, Producer

from fencepost.core.schedule import Every
from tests.scenarios.stage import Stage, python_task

SEED = 20_261_130
BAD, GOOD = 1000, 1500
PAUSE = b'{"op":"pause"}'
QUICK = b'{"payload":{"seconds":0}}'
NOT_UTF8 = b"\xc3\x28"
Headers = list[tuple[str, bytes | None]]
Bad = tuple[str, bytes | None, bytes | None, Headers]  # topic's kind, key, value, headers

TRIGGERS: tuple[Bad, ...] = tuple(
    ("triggers", key, value, headers)
    for key, value, headers in (
        (b"\x83\xff", b"{}", []),
        (b"t/bad", NOT_UTF8, []),
        (b"t/bad", b"{}", [("note", NOT_UTF8)]),
        (b"t/bad", b"{}", [("note", None)]),
        (b"t/bad", None, []),
        (None, b"{}", []),
        (None, None, []),
        (b"", b"{}", []),
        (b"t/bad", b"{", []),
        (b"t/bad", b"[]", []),
        (b"t/bad", b"7", []),
        (b"t/bad", b'{"task":"t/other"}', []),
        (b"t/nul\x00", b"{}", []),
        (b"t/new\nline", b"{}", []),
        (b"t/" + b"x" * 300, b"{}", []),
        (b"nobody/has/this", b"{}", []),
        (b"t/bad", b'{"payload":NaN}', []),
        (b"t/bad", b'{"payload":{"a":1e309}}', []),
        (b"t/bad", b'{"payload":' + b"[" * 5000 + b"]" * 5000 + b"}", []),
        (b"t/bad", b'{"payload":"' + b"x" * 300_000 + b'"}', []),
        (b"t/bad", b'{"id":"a","id":"b"}', []),
        (b"t/bad", rb'{"id":"\ud800"}', []),
        (b"t/bad", b'{"delay":-1}', []),
        (b"t/bad", b'{"delay":"soon"}', []),
        (b"t/bad", b'{"run_at":"2026-13-45T00:00:00Z"}', []),
        (b"t/bad", b'{"run_at":"2026-11-30 10:00"}', []),
        (b"t/bad", b'{"delay":"1s","run_at":"2030-01-01T00:00:00Z"}', []),
        (b"t/bad", b'{"priority":10}', []),
        (b"t/bad", b'{"unheard_of":1}', []),
    )
)
CONTROL: tuple[Bad, ...] = tuple(
    ("control", key, value, [])
    for key, value in (
        (b"t/bad", b"{}"),
        (b"t/bad", b"stop"),
        (b"t/bad", b'{"op":"explode"}'),
        (b"t/bad", None),
        (b"\xff", b'{"op":"pause"}'),
        (None, b'{"op":"pause"}'),
    )
)


def bytes_of(letter: dict[str, Any], name: str) -> bytes | None:
    form = letter.get(name)
    if form is None:
        return None
    return form["text"].encode() if "text" in form else b64decode(form["base64"])


def send(stage: Stage, records: list[Bad]) -> list[tuple[str, int, int]]:
    """Where each of them came to lie, in the order given."""
    topics = {"triggers": stage.world.topics.triggers, "control": stage.world.topics.control}
    producer = Producer({"bootstrap.servers": stage.world.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5})
    places: list[tuple[str, int, int]] = [("", -1, -1)] * len(records)

    def noting(number: int) -> Callable[[object, Message], None]:
        def note(error: object, message: Message) -> None:
            assert error is None, error
            places[number] = (message.topic() or "", int(message.partition() or 0), int(message.offset() or 0))

        return note

    for number, (kind, key, value, headers) in enumerate(records):
        while True:
            try:
                producer.produce(topics[kind], value, key, headers=headers, on_delivery=noting(number))
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(30) == 0
    return places


def test_a_thousand_bad_records_among_good_ones_are_all_kept_and_hold_up_nothing(stage: Stage) -> None:
    """Every bad one is a dead letter with its bytes; every good one runs once; no slot of a tick is left out."""
    stage.start_all("a")
    stage.define(python_task("tick", seconds=0.0, schedule=Every(1)))
    stage.wait_line("tick")
    kinds = [*TRIGGERS, *CONTROL]
    bad = [kinds[number % len(kinds)] for number in range(BAD)]
    good: list[Bad] = [
        ("triggers", f"t/good-{number}".encode(), b'{"payload":{"seconds":0}}', []) for number in range(GOOD)
    ]
    mixed = [*bad, *good]
    random.Random(SEED).shuffle(mixed)
    places = send(stage, mixed)
    tasks = [str(key, "utf-8") for _kind, key, _value, _headers in good if key is not None]
    stage.wait("every good one ended", lambda: succeeded(stage, "t/good-") >= set(tasks), limit_s=120)
    expected = {
        place: (key, value) for place, (_kind, key, value, _h) in zip(places, mixed, strict=True) if is_bad(key)
    }
    assert len(expected) == BAD
    mark(stage)
    letters = stage.dead_letters()
    found = {(item["topic"], item["partition"], item["offset"]): item for item in letters}
    assert len(letters) == len(found) == BAD
    assert {place: (bytes_of(item, "key"), bytes_of(item, "value")) for place, item in found.items()} == expected
    assert all(item["reason"] for item in letters)
    events = [event for event in all_history(stage) if event["task"].startswith("t/good-")]
    assert Counter((event["task"], event["kind"]) for event in events) == Counter(
        (task, kind) for task in tasks for kind in ("started", "succeeded")
    )
    stage.cli("delete", "tick")
    assert not [event for event in stage.world.history("tick") if event["kind"] in ("missed", "skipped", "interrupted")]
    slots = [line.slot_ms for line in stage.began("tick")]
    assert slots == list(range(slots[0], slots[-1] + 1, 1000))  # type: ignore[operator,arg-type]
    worker = stage.workers["a"]
    assert worker.ready()
    assert not [line for line in worker.lines() if line.get("level") == "error"]
    stage.check_no_overlap()


def mark(stage: Stage) -> None:
    """Waits until both topics were taken to where they end now, on every partition."""
    tasks = [f"t/mark-{number}" for number in range(40)]
    assert {stage.world.partition(task) for task in tasks} == set(range(stage.world.info.partitions))
    send(stage, [("triggers", task.encode(), QUICK, []) for task in tasks])
    stage.wait("a mark behind every trigger", lambda: succeeded(stage, "t/mark-") == set(tasks))
    send(stage, [("control", task.encode(), PAUSE, []) for task in tasks])
    stage.wait("a mark behind every control record", lambda: all(paused(stage, task) for task in tasks))


def paused(stage: Stage, task: str) -> bool:
    return bool((stage.world.state(task) or {}).get("paused"))


def is_bad(key: bytes | None) -> bool:
    return key is None or not key.startswith(b"t/good-")


def all_history(stage: Stage) -> list[dict[str, Any]]:
    from fencepost.codec import loads

    return [loads(record.value) for record in stage.world.records(stage.world.topics.runs) if record.value is not None]


def succeeded(stage: Stage, prefix: str) -> set[str]:
    return {
        event["task"]
        for event in all_history(stage)
        if event["kind"] == "succeeded" and event["task"].startswith(prefix)
    }
