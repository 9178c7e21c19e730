"""What ties a task to others, in a record of its own."""

from __future__ import annotations

from typing import Any, Final

from fencepost.codec import BadRecord, dumps, loads_own
from fencepost.core.links import Links
from fencepost.wire.schema import check

VERSION: Final = 1
LINKS: Final = "links"  # the kind in the record's key, see core.ids.side_key


def encode_links(task: str, links: Links, lane: str, nonce: str) -> bytes:
    """The value of a links record; its key is the task ID, U+001F, "links", U+001F and 0."""
    body: dict[str, Any] = {"v": VERSION, "task": task, "lane": lane, "nonce": nonce}
    if links.children:
        body["children"] = list(links.children)
    return dumps(body)


def decode_links(value: bytes) -> Links:
    """Raises BadRecord."""
    body = loads_own(value)
    if type(body) is not dict:
        raise BadRecord("a links record is a JSON object")
    if body.get("v") != VERSION:
        raise BadRecord(f"unknown version {str(body.get('v'))[:40]}; this release knows version {VERSION}", "v")
    check("links", body)
    return Links(tuple(body.get("children", ())))
