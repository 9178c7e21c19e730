"""HTTP handlers of definitions: their JSON, and what JSON Schema cannot say of it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from fencepost.codec import BadRecord, dumps_given, loads_own
from fencepost.core.task import HttpHandler, Redirects
from fencepost.core.times import parse_duration
from fencepost.wire.schema import check

# Nothing that two parsers of URLs could read in two ways: no user, no fragment, no blanks, no backslash, ASCII only.
_URL: Final = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!\"$-\[\]-~]*)?")
_BODILESS: Final = ("GET", "HEAD", "DELETE")
_OWN_HEADERS: Final = (
    "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
)  # fmt: skip
_DEFAULT: Final = HttpHandler("")


def checked_http(body: dict[str, Any]) -> HttpHandler:
    """The handler that keywords describe. Raises BadRecord, NotEncodable."""
    body = loads_own(dumps_given(body))
    check("definition", {"handler": body})
    return read_http(body)


def read_http(body: dict[str, Any]) -> HttpHandler:
    """The handler that a JSON object describes, which was checked against the schema. Raises BadRecord."""
    return _known_http(dumps_given(body))


@lru_cache(maxsize=4096)
def _known_http(form: bytes) -> HttpHandler:
    body = loads_own(form)
    method = body.get("method", _DEFAULT.method)
    return HttpHandler(
        url=_url(body["url"]),
        method=method,
        headers=_headers(body.get("headers", {})),
        sends_payload=_sends_payload(method, body.get("body")),
        success=_statuses(body["success"], "success") if "success" in body else _DEFAULT.success,
        retried=_statuses(body["retry_statuses"], "retry_statuses") if "retry_statuses" in body else _DEFAULT.retried,
        timeout_s=_timeout(body.get("timeout_s", _DEFAULT.timeout_s)),
        redirects=Redirects(body.get("redirects", _DEFAULT.redirects)),
    )


def http_to_json(handler: HttpHandler) -> dict[str, Any]:
    """The JSON object; what is at its default is left out."""
    body: dict[str, Any] = {"kind": "http", "url": handler.url}
    if handler.method != _DEFAULT.method:
        body["method"] = handler.method
    if handler.headers:
        body["headers"] = dict(handler.headers)
    if handler.sends_payload != _usually_sends(handler.method):
        body["body"] = "payload" if handler.sends_payload else "none"
    if handler.success != _DEFAULT.success:
        body["success"] = _ranges(handler.success)
    if handler.retried != _DEFAULT.retried:
        body["retry_statuses"] = _ranges(handler.retried)
    if handler.timeout_s != _DEFAULT.timeout_s:
        body["timeout_s"] = handler.timeout_s
    if handler.redirects is not _DEFAULT.redirects:
        body["redirects"] = handler.redirects.value
    return body


def _url(text: str) -> str:
    found = _URL.fullmatch(text)
    if found is None or (found[2] and not 0 < int(found[2][1:]) < 65536):
        raise BadRecord(
            "is not a URL that can be called; allowed: http:// or https://, a host in ASCII, perhaps a port, a path "
            "and a query, without user, fragment, blanks and backslashes",
            "handler.url",
        )
    return text


def _headers(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    seen: set[str] = set()
    for name in given:
        low = name.lower()
        if low in _OWN_HEADERS or low.startswith("fencepost-"):
            raise BadRecord("is set by Fencepost or by the connection; leave it out", f"handler.headers.{name}")
        if low in seen:
            raise BadRecord("is given twice, in two ways of writing it", f"handler.headers.{name}")
        seen.add(low)
    return tuple(sorted(given.items()))


def _usually_sends(method: str) -> bool:
    return method not in _BODILESS


def _sends_payload(method: str, body: str | None) -> bool:
    if body is None:
        return _usually_sends(method)
    if body == "payload" and method in ("GET", "HEAD"):
        raise BadRecord(f"a {method} has no body; allowed: none", "handler.body")
    return body == "payload"


def _statuses(items: list[int | float | str], field: str) -> tuple[tuple[int, int], ...]:
    ranges = []
    for item in items:
        # JSON Schema counts 404.0 as an integer too.
        low, _, high = (item if isinstance(item, str) else str(int(item))).partition("-")
        ranges.append((int(low), int(high or low)))
        if not 100 <= ranges[-1][0] <= ranges[-1][1] <= 599:
            raise BadRecord(f"{item!r} is no range of statuses; allowed: 100 to 599, low end first", f"handler.{field}")
    return tuple(ranges)


def _ranges(ranges: tuple[tuple[int, int], ...]) -> list[int | str]:
    return [low if low == high else f"{low}-{high}" for low, high in ranges]


def _timeout(value: str | float) -> float:
    try:
        duration_s = parse_duration(value)
    except ValueError as error:
        raise BadRecord(str(error), "handler.timeout_s") from error
    if duration_s <= 0:
        raise BadRecord("0 leaves no time for an answer", "handler.timeout_s")
    return duration_s
