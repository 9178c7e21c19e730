"""A dead letter that is sent again says where it came from and how often (case E05)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.cli.replay import ORIGIN_HEADER, replay_of
from fencepost.codec import loads
from fencepost.core.ids import partition_of
from fencepost.kafka.topics import Topics
from fencepost.wire.dead_letter import REPLAYS_HEADER, DeadLetter, replays_of

TOPICS = Topics("n")
LETTER = DeadLetter("no good", "n.triggers", 3, 17, b"task", b'{"id":"a","payload":1}', (("ce_id", b"a"), ("x", b"y")))


def test_a_replay_goes_back_to_its_topic_with_origin_and_count() -> None:
    out = replay_of(LETTER, "3:5", TOPICS, 16)
    assert (out.topic, out.key, out.partition) == ("n.triggers", b"task", partition_of(b"task", 16))
    assert out.headers["x"] == b"y"
    assert out.headers[ORIGIN_HEADER] == b"n.dead-letter/3/5"
    assert out.headers[REPLAYS_HEADER] == b"1"


def test_the_copy_of_a_trigger_is_no_duplicate_of_the_first() -> None:
    out = replay_of(LETTER, "3:5", TOPICS, 16)
    assert out.value is not None
    assert loads(out.value) == {"id": "a~1", "payload": 1}
    assert out.headers["ce_id"] == b"a~1"


def test_each_replay_counts_on() -> None:
    letter = LETTER
    for count in range(1, 6):
        out = replay_of(letter, "3:5", TOPICS, 16)
        headers = tuple((name, value) for name, value in out.headers.items() if isinstance(value, bytes))
        assert replays_of(headers) == count
        letter = replace(letter, value=out.value, headers=headers, replays=count)
    assert [name for name, _ in letter.headers].count(REPLAYS_HEADER) == 1


def test_a_long_id_stays_within_its_limit() -> None:
    letter = replace(LETTER, value=b'{"id":"' + "é".encode() * 127 + b'"}', headers=())
    out = replay_of(letter, "3:5", TOPICS, 16)
    assert out.value is not None
    assert len(loads(out.value)["id"].encode()) <= 255


@pytest.mark.parametrize("value", [b"\xc3\x28", b"[1]", b"{", b'{"id":5}'])
def test_a_body_that_cannot_be_read_goes_as_it_is(value: bytes) -> None:
    assert replay_of(replace(LETTER, value=value), "3:5", TOPICS, 16).value == value


def test_a_record_without_key_goes_to_the_partition_it_lay_on() -> None:
    assert replay_of(replace(LETTER, key=None), "3:5", TOPICS, 16).partition == 3


@pytest.mark.parametrize("topic", ["n.dead-letter", "n.state", "elsewhere"])
def test_a_letter_from_a_topic_that_is_not_for_requests_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match=rf"it came from {topic}; allowed: n\.triggers"):
        replay_of(replace(LETTER, topic=topic), "3:5", TOPICS, 16)


def test_a_tombstone_is_not_sent_again() -> None:
    with pytest.raises(ValueError, match="tombstone"):
        replay_of(replace(LETTER, topic="n.tasks", value=None), "3:5", TOPICS, 16)
