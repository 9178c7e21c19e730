"""Signals on their way out: a record for the owner of another ID, in the transaction of the step that sends it."""

from __future__ import annotations

from fencepost.core.commands import DropLinks, PutLinks, Send
from fencepost.core.ids import partition_of, side_key
from fencepost.core.links import Links
from fencepost.core.machine import new_task
from fencepost.core.signals import Subscribe
from fencepost.kafka.topics import Topics
from fencepost.wire.control import encode_signal
from fencepost.wire.links import decode_links
from fencepost.worker.batch import Encoder, Expected, Part

PARTITIONS = 16


CHILD = new_task("child")


def a_part() -> Part:
    part = Part(3, "nonce", 0)
    part.touch("child", CHILD)
    return part


def test_a_signal_goes_to_the_control_partition_of_the_id_it_is_for() -> None:
    part = a_part()
    part.add("child", CHILD, [Send("parent", Subscribe())])
    of_state, (record,) = Encoder(Topics("ns"), PARTITIONS, "lane", "/ns").records(part, {})
    assert of_state == []
    assert (record.topic, record.key) == ("ns.control", b"parent")
    assert record.partition == partition_of(b"parent", PARTITIONS) != 3
    assert record.value == encode_signal("child", Subscribe(), "lane", "nonce")


def test_links_are_a_record_beside_the_state_that_is_read_back_like_it() -> None:
    part, expected = a_part(), Expected()
    part.add("child", CHILD, [PutLinks(Links(("a", "b")))])
    (record,), _ = Encoder(Topics("ns"), PARTITIONS, "lane", "/ns").records(part, expected)
    key = side_key("child", "links", 0).encode()
    assert (record.topic, record.partition, record.key) == ("ns.state", 3, key)
    assert expected == {("ns.state", 3, key): record.value}
    assert decode_links(record.value or b"") == Links(("a", "b"))
    part.add("child", CHILD, [DropLinks()])
    (record,), _ = Encoder(Topics("ns"), PARTITIONS, "lane", "/ns").records(part, {})
    assert record.value is None
