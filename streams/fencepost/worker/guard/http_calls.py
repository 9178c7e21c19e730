"""HTTP requests as runs: the only importer of aiohttp here. One event loop waits for many answers at a time."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from fencepost import codec
from fencepost.core.task import HttpHandler, Redirects
from fencepost.core.times import format_ms
from fencepost.fencing import http as fencing
from fencepost.run_context import RunContext
from fencepost.worker.guard import results
from fencepost.worker.guard.hosts import AllowedHosts, is_public
from fencepost.worker.guard.results import Failed
from fencepost.worker.guard.settings import CallSettings
from fencepost.worker.guard.tls import tls_context

BODY_MAX_BYTES: Final = 64 * 1024  # of an answer; what follows is not read
CUT_MAX_CHARS: Final = 8 * 1024  # of a body that was cut, or has too large a form as JSON
SHOWN_CHARS: Final = 500  # of a body, in an error
REDIRECTS_MAX: Final = 5
_MOVED: Final = (301, 302, 303, 307, 308)
_KEEP_METHOD: Final = (307, 308)
ATTEMPT: Final = "Fencepost-Attempt"
SCHEDULED_FOR: Final = "Fencepost-Scheduled-For"


class HttpCalls:
    """Makes the requests of this process. Each has a connection of its own: a kept one may break under any request."""

    def __init__(self, settings: CallSettings) -> None:
        self._hosts = AllowedHosts(settings.hosts)
        self._tls = tls_context(settings)

    def of(self, target: list[Any]) -> Callable[[RunContext], Awaitable[Any]]:
        """The run of a handler, whose fields come in their order."""
        handler = HttpHandler(*target)
        return partial(self._call, replace(handler, redirects=Redirects(handler.redirects)))  # it was JSON meanwhile

    async def _call(self, handler: HttpHandler, context: RunContext) -> Any:
        try:
            async with asyncio.timeout(handler.timeout_s):
                return await self._exchange(handler, context)
        except TimeoutError as late:
            shown = _shown(handler.method, URL(handler.url))
            names = results.names_of(late)
            raise Failed(f"{shown}: no answer in {handler.timeout_s:g} s", names=names) from None

    async def _exchange(self, handler: HttpHandler, context: RunContext) -> Any:
        url, method = URL(handler.url, encoded=True), handler.method
        headers = {**dict(handler.headers), **_headers_of(context)}
        body: bytes | None = None
        if handler.sends_payload and context.payload is not None:
            body = codec.dumps(context.payload)
            if not any(name.lower() == "content-type" for name in headers):
                headers["Content-Type"] = "application/json"
        for _ in range(REDIRECTS_MAX + 1):
            status, answered, text, cut = await self._request(method, url, headers, body, context)
            location = answered.get("Location")
            if status not in _MOVED or location is None or handler.redirects is Redirects.NONE:
                return _judge(handler, _shown(method, url), status, answered.get("Content-Type", ""), text, cut)
            target = self._next_of(url, location, handler.redirects)
            if status not in _KEEP_METHOD and method not in ("GET", "HEAD"):
                method, body = "GET", None  # as every client does
                headers.pop("Content-Type", None)
            if target.host != url.host:
                headers = _headers_of(context)  # the others may be secrets of the first host
                if body is not None:
                    headers["Content-Type"] = "application/json"
            url = target
        raise Failed(f"{_shown(handler.method, URL(handler.url))}: more than {REDIRECTS_MAX} redirects", final=True)

    async def _request(
        self, method: str, url: URL, headers: dict[str, str], body: bytes | None, context: RunContext
    ) -> tuple[int, Any, bytes, bool]:
        """Status, headers, body, and whether that was cut."""
        host, port = url.host or "", url.port or 0
        refusal = self._hosts.refusal(host, port)
        if refusal is not None:
            raise Failed(refusal, final=True)
        resolver = None if self._hosts.exactly(host, port) else _PublicOnly()
        connector = aiohttp.TCPConnector(ssl=self._tls, force_close=True, resolver=resolver, limit=1)
        began = time.monotonic()
        shown = _shown(method, url)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                    auto_decompress=False,
                    trust_env=False,
                    skip_auto_headers=("User-Agent", "Accept-Encoding"),
                ) as session,
                session.request(method, url, headers=headers, data=body, allow_redirects=False) as response,
            ):
                text, cut = await _bounded(response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Failed(f"{shown}: {type(error).__name__}: {error}", names=results.names_of(error)) from None
        context.log(f"{shown} → {response.status} in {time.monotonic() - began:.3f} s")
        return response.status, response.headers, text, cut

    def _next_of(self, url: URL, location: str, allowed: Redirects) -> URL:
        try:
            target = url.join(URL(location)).with_fragment(None)
            host, port = target.host or "", target.port or 0
        except ValueError:
            raise Failed(f"{url.origin()}: a redirect to {location[:200]!r}, which is no URL", final=True) from None
        why = None
        if target.scheme not in ("http", "https") or target.user is not None or target.password is not None or not host:
            why = "only plain http and https are followed"
        elif url.scheme == "https" and target.scheme != "https":
            why = "it would go on without TLS"
        elif allowed is Redirects.SAME_HOST and host != url.host:
            why = "it leads to another host, and redirects is same_host"
        else:
            why = self._hosts.refusal(host, port)
        if why is not None:
            raise Failed(f"{url.origin()}: the redirect to {_bare(target)} was not followed: {why}", final=True)
        return target


class _PublicOnly(AbstractResolver):
    """Names that only a pattern lets through must not lead into this machine's own network."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        hidden = [entry["host"] for entry in found if not is_public(entry["host"])]
        if hidden:
            raise Failed(
                f"handler.url: {host} lies at {hidden[0]}, which is no public address, and this worker's list does not "
                "name it"
            )
        return found

    async def close(self) -> None:
        await self._inner.close()


def _headers_of(context: RunContext) -> dict[str, str]:
    headers = {**fencing.headers(context), ATTEMPT: str(context.attempt), "User-Agent": "fencepost"}
    if context.scheduled_for is not None:
        headers[SCHEDULED_FOR] = format_ms(round(context.scheduled_for.timestamp() * 1000))
    return headers


async def _bounded(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    taken = bytearray()
    while len(taken) <= BODY_MAX_BYTES:
        more = await response.content.read(BODY_MAX_BYTES + 1 - len(taken))
        if not more:
            return bytes(taken), False
        taken += more
    return bytes(taken[:BODY_MAX_BYTES]), True


def _judge(handler: HttpHandler, shown: str, status: int, kind: str, body: bytes, cut: bool) -> Any:
    """The run's result; raises Failed for a status that is no success."""
    if not _within(status, handler.success):
        text = body[: 4 * SHOWN_CHARS].decode("utf-8", "replace").strip()[:SHOWN_CHARS]
        said = f": {text}" if text else ""
        raise Failed(f"{shown}: {status} {_phrase(status)}{said}", final=not _within(status, handler.retried))
    result: dict[str, Any] = {"status": status}
    if not body:
        return result
    if not cut and "json" in kind.lower():
        try:
            result["body"] = codec.loads(body)
        except codec.BadRecord:
            result["body"] = body.decode("utf-8", "replace")
    else:
        result["body"] = body.decode("utf-8", "replace")
    if cut or results.unfit(result) is not None:
        result["body"] = body.decode("utf-8", "replace")[:CUT_MAX_CHARS]
        result["cut"] = True
    return result


def _within(status: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= status <= high for low, high in ranges)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _shown(method: str, url: URL) -> str:
    return f"{method} {_bare(url)}"


def _bare(url: URL) -> str:
    """Without the query: it may hold secrets."""
    bare = str(url.with_query(None).with_user(None)) if url.absolute else str(url)
    return quote(bare, safe=":/[]@!$&'()*+,;=%~")[:300]
