"""A thousand bad records of every kind mixed into good traffic: each is kept with its bytes, and nobody waits for them.

The kinds are those of the cases of bad input (I01 to I15); those that ask for no dead letter are left to
`test_bad_records.py`. Nothing here is judged by a clock: of each partition all that lies before a mark must have
started when the mark ends.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from fencepost.codec import loads
from tests.scenarios.stage import Stage
from tests.scenarios.test_bad_records import NOT_UTF8, original

BAD = 1_000
GOOD = 1_000


@dataclass(frozen=True, slots=True)
class Bad:
    """One kind of bad trigger."""

    case: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


KINDS = [
    Bad("i01 key", b"\x83\xff", b"{}"),
    Bad("i01 value", b"t/bad", NOT_UTF8),
    Bad("i01 header", b"t/bad", b"{}", (("note", NOT_UTF8),)),
    Bad("i01 header name", b"t/bad", b"{}", (("n\u00f6te", b"x"),)),
    Bad("i01 header without value", b"t/bad", b"{}", (("note", None),)),
    Bad("i03 tombstone", b"t/bad", None),
    Bad("i05 infinity", b"t/bad", b'{"payload":{"a":1e309}}'),
    Bad("i05 not a number", b"t/bad", b'{"payload":NaN}'),
    Bad("i05 long number", b"t/bad", b'{"payload":' + b"9" * 5000 + b"}"),
    Bad("i05 deep", b"t/bad", b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    Bad("i05 lone surrogate", b"t/bad", rb'{"id":"\ud800"}'),
    Bad("i05 NUL in ID", b"t/nul\x00", b"{}"),
    Bad("i05 newline in ID", b"t/new\nline", b"{}"),
    Bad("i05 field twice", b"t/bad", b'{"id":"a","id":"b"}'),
    Bad("i05 long ID", b"t/" + b"x" * 3_000, b"{}"),
    Bad("i05 long deduplication ID", b"t/bad", b'{"id":"' + b"x" * 3_000 + b'"}'),
    Bad("i05 far delay", b"t/bad", b'{"delay":1e300}'),
    Bad("i05 no such day", b"t/bad", b'{"run_at":"9999-99-99T00:00:00Z"}'),
    Bad("i05 a list", b"t/bad", b"[]"),
    Bad("i05 half", b"t/bad", b"{"),
    Bad("i05 unknown ID", b"__proto__", b"{}"),
    Bad("i05 a path", b"../../x", b"{}"),
    Bad("i07 no key, no task", None, b"{}"),
    Bad("i07 two tasks", b"t/bad", b'{"task":"t/other"}'),
    Bad("i09 empty key", b"", b"{}"),
    Bad("i11 a time that is none", b"t/bad", b'{"run_at":1}'),
    Bad("i13 unknown version", b"t/bad", b'{"v":99,"payload":{"n":1}}'),
    Bad("i15 run_at and delay", b"t/bad", b'{"run_at":"2030-01-01T00:00:00Z","delay":1}'),
]


def test_a_thousand_bad_records_stall_nobody_and_each_is_kept_with_its_bytes(stage: Stage) -> None:
    stage.start_all("a")
    good = [f"t/good-{number}" for number in range(GOOD)]
    traffic: list[Bad | str] = [*itertools.islice(itertools.cycle(KINDS), BAD), *good]
    random.Random(9).shuffle(traffic)  # an order that is the same each time
    sent = send(stage, traffic)
    marks = [stage.task_on(number, "t/mark-") for number in range(stage.world.info.partitions)]
    for task in marks:
        stage.trigger(task)
    for task in marks:
        stage.wait_kind(task, "succeeded", limit_s=90)
    # No good one is late: whatever lay before the mark of its partition had started when that ended.
    for mark in marks:
        before = started_before_the_end_of(stage, mark)
        assert {task for task in good if stage.world.partition(task) == stage.world.partition(mark)} <= before
    stage.wait("every good one ran", lambda: outcomes(stage, "succeeded") == len(good) + len(marks))
    assert outcomes(stage, "started") == len(good) + len(marks)
    check_letters(stage, sent)
    worker = stage.workers["a"]
    assert worker.exit_code is None
    assert worker.ready()
    assert "Traceback" not in worker.log_text()
    assert stage.world.state("t/bad") is None
    stage.check_no_overlap()


def send(stage: Stage, traffic: list[Bad | str]) -> dict[tuple[int, int], Bad]:
    """Produces it in this order; returns where each bad one lies."""
    placed: dict[tuple[int, int], Bad] = {}
    problems: list[Any] = []

    def note(bad: Bad | None) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                problems.append(error)
            elif bad is not None:
                placed[message.partition(), message.offset()] = bad

        return delivered

    producer = Producer({"bootstrap.servers": stage.world.bootstrap, "partitioner": "murmur2_random"})
    for number, item in enumerate(traffic):
        bad = item if isinstance(item, Bad) else Bad("good", str(item).encode(), b'{"payload":{"seconds":0}}')
        options: dict[str, Any] = {"headers": list(bad.headers)} if bad.headers else {}
        if not bad.key:  # anywhere
            options["partition"] = number % stage.world.info.partitions
        on_delivery = note(None if isinstance(item, str) else bad)
        producer.produce(stage.world.topics.triggers, bad.value, bad.key, on_delivery=on_delivery, **options)
    assert producer.flush(60) == 0
    assert not problems
    return placed


def started_before_the_end_of(stage: Stage, mark: str) -> set[str]:
    """IDs on the mark's partition whose start stands before the end of the mark in the history."""
    before: set[str] = set()
    for record in stage.world.records(stage.world.topics.runs, stage.world.partition(mark)):
        kind = loads(record.value or b"{}").get("kind")
        if kind == "started":
            before.add(record.key_text)
        elif kind == "succeeded" and record.key_text == mark:
            break
    return before


def outcomes(stage: Stage, kind: str) -> int:
    records = stage.world.records(stage.world.topics.runs)
    return sum(loads(record.value or b"{}").get("kind") == kind for record in records)


def check_letters(stage: Stage, sent: dict[tuple[int, int], Bad]) -> None:
    """One for each bad record and none besides, with the bytes as they were produced."""
    assert len(sent) == BAD
    letters = stage.dead_letters()
    places = Counter((letter["partition"], letter["offset"]) for letter in letters)
    assert {letter["topic"] for letter in letters} == {stage.world.topics.triggers}
    assert places == Counter(sent.keys())
    for letter in letters:
        bad = sent[letter["partition"], letter["offset"]]
        assert (original(letter, "key"), original(letter, "value")) == (bad.key, bad.value), bad.case
        assert [original({"it": form}, "it") for _name, form in letter["headers"]] == [
            value for _name, value in bad.headers
        ], bad.case
        assert letter["reason"], bad.case
