"""Objects in a store with conditional puts: the pattern, on a store that can be made to change at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

import pytest

from fencepost.fencing import StaleEpoch, Token, objects
from fencepost.fencing.objects import Head


class Bucket:
    """A store whose tags change with each put. `between`: what happens between a look and the put that follows."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str], int]] = {}
        self.between: list[Callable[[], None]] = []
        self.puts = 0

    def head(self, key: str) -> Head | None:
        found = self.objects.get(key)
        head = None if found is None else Head(str(found[2]), dict(found[1]))
        if self.between:
            self.between.pop(0)()
        return head

    def put_if(self, key: str, data: bytes, metadata: Mapping[str, str], tag: str | None) -> bool:
        found = self.objects.get(key)
        if (None if found is None else str(found[2])) != tag:
            return False
        self.puts += 1
        self.objects[key] = (data, dict(metadata), self.puts)
        return True


def run(epoch: int, task: str = "report") -> Token:
    return Token("n", task, epoch)


def test_a_stale_epoch_cannot_replace_the_object() -> None:
    bucket = Bucket()
    objects.write(bucket, "o", b"two", run(2))
    objects.write(bucket, "o", b"two again", run(2))
    objects.write(bucket, "o", b"five", run(5))
    with pytest.raises(StaleEpoch) as refused:
        objects.write(bucket, "o", b"four", run(4))
    assert (refused.value.newest, bucket.objects["o"][0]) == (5, b"five")


def test_a_newer_run_between_the_look_and_the_put_wins() -> None:
    bucket = Bucket()
    bucket.between = [lambda: objects.write(bucket, "o", b"two", run(2))]
    with pytest.raises(StaleEpoch):
        objects.write(bucket, "o", b"one", run(1))
    assert (bucket.objects["o"][0], bucket.puts) == (b"two", 1)


def test_an_older_run_between_the_look_and_the_put_loses() -> None:
    bucket = Bucket()
    bucket.between = [lambda: objects.write(bucket, "o", b"one", run(1))]
    objects.write(bucket, "o", b"two", run(2))
    assert (bucket.objects["o"][0], bucket.puts) == (b"two", 2)


def test_an_object_that_was_there_before_is_taken_over() -> None:
    bucket = Bucket()
    assert bucket.put_if("o", b"by hand", {}, None)
    objects.write(bucket, "o", b"one", run(1))
    assert bucket.objects["o"][1] == {"fencepost-namespace": "n", "fencepost-task": "report", "fencepost-epoch": "1"}


def test_another_tasks_object_is_left_alone() -> None:
    bucket = Bucket()
    objects.write(bucket, "o", b"one", run(1))
    with pytest.raises(objects.AnothersObject, match=r"'report'.*not by 'other'"):
        objects.write(bucket, "o", b"other", run(9, "other"))


def test_a_store_that_never_stands_still_is_given_up() -> None:
    bucket = Bucket()

    def disturb() -> None:
        bucket.objects["o"] = (b"", {}, -len(bucket.between))

    bucket.between = [disturb] * 50
    with pytest.raises(objects.Contended, match="20 times"):
        objects.write(bucket, "o", b"one", run(1))
    assert bucket.puts == 0


class HashingBucket(Bucket):
    """As S3: the tag is a hash of the bytes."""

    def head(self, key: str) -> Head | None:
        found = self.objects.get(key)
        head = None if found is None else Head(sha256(found[0]).hexdigest(), dict(found[1]))
        if self.between:
            self.between.pop(0)()
        return head

    def put_if(self, key: str, data: bytes, metadata: Mapping[str, str], tag: str | None) -> bool:
        found = self.objects.get(key)
        if (None if found is None else sha256(found[0]).hexdigest()) != tag:
            return False
        self.puts += 1
        self.objects[key] = (data, dict(metadata), self.puts)
        return True


@pytest.mark.parametrize("in_the_bytes", [False, True], ids=["as they are", "with the epoch"])
def test_where_tags_are_hashes_the_bytes_must_hold_the_epoch(in_the_bytes: bool) -> None:
    """A newer run puts the very bytes that are there, between an older one's look and its put."""
    bucket = HashingBucket()

    def put(epoch: int, data: bytes) -> None:
        objects.write(bucket, "o", data + (f"# epoch {epoch}\n".encode() if in_the_bytes else b""), run(epoch))

    put(1, b"same")
    bucket.between = [lambda: put(2, b"same")]
    if in_the_bytes:
        with pytest.raises(StaleEpoch):
            put(1, b"stale")
        assert bucket.objects["o"][0] == b"same# epoch 2\n"
    else:
        put(1, b"stale")  # gets through: what the page warns of
        assert bucket.objects["o"][0] == b"stale"
