from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.ids import check_task_id, murmur2, partition_of, side_key, split_key

VECTORS = json.loads((Path(__file__).parents[1] / "cases" / "partition_vectors.json").read_bytes())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['key']}/{vector['n']}")
def test_a_key_lands_where_javas_producer_puts_it(vector: dict[str, object]) -> None:
    assert partition_of(str(vector["key"]).encode(), int(str(vector["n"]))) == vector["murmur2"]


# From UtilsTest.testMurmur2 of Apache Kafka, as unsigned numbers.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed % 2**32


@given(st.binary(max_size=300), st.integers(1, 1000))
def test_every_key_has_one_partition_in_range(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


@pytest.mark.parametrize(
    "task_id",
    ["a", "report", "invoice/2026-11", "задача-1", "x" * 255, "ä" * 127, "__proto__", "../../x", " ", "a b", "😀"],
)
def test_an_id_is_any_short_text_without_control_characters(task_id: str) -> None:
    assert check_task_id(task_id) == task_id


@pytest.mark.parametrize(
    ("task_id", "why"),
    [
        ("", "at least one"),
        ("x" * 256, "at most 255 bytes"),
        ("ä" * 128, "at most 255 bytes of UTF-8, this one has 256"),
        ("x" * 300_000, "this one has 300000"),
        ("a\0b", r"U\+0000 at position 1"),
        ("a\n", r"U\+000A"),
        ("a\x1fwork\x1f1", r"U\+001F"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_what_is_no_id_is_refused_with_the_reason(task_id: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_task_id(task_id)


def test_a_side_key_tells_its_task_kind_and_number() -> None:
    assert side_key("a/b", "work", 12) == "a/b\x1fwork\x1f12"
    assert split_key("a/b\x1fwork\x1f12") == ("a/b", "work", 12)
    assert split_key("a/b") == ("a/b", None, 0)


@pytest.mark.parametrize("key", ["a\x1fwork", "a\x1fwork\x1fx", "a\x1fwork\x1f1\x1f2", "a\x1fwork\x1f-1"])
def test_a_malformed_side_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not a key of the state topic"):
        split_key(key)
