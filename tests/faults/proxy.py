"""A TCP proxy that understands Kafka's frames: requests and answers are held back, lost or cut off by their API.

    with Proxy() as proxy, Cluster(folder, proxy=ProxyListener(proxy.port)) as cluster:
        proxy.forward_to(cluster.proxy_target(1))
        rule = proxy.hold(Api.END_TXN, times=1)        # clients bootstrap at proxy.bootstrap
        ...
        rule.wait(); rule.release()

The broker names the proxy's port to its clients, so that everything they send passes here. An event loop in a thread of
its own does the work. Rules are tried in the order they were made; the first that fits decides.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
LIMIT_S = 20.0


class Api(IntEnum):
    """The requests that tests care for, by Kafka's numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came. `frame` is all of it, with its length in front."""

    api: int
    correlation: int
    client_id: str
    frame: bytes

    def names(self, text: str) -> bool:
        """Whether this text stands in it: a transactional ID, say."""
        return text.encode() in self.frame


class Action(Enum):
    HOLD = "hold"  # the request waits for `release`; the way to the broker stays open though the client hangs up
    DETACH = "detach"  # as HOLD, and the client's connection breaks at once
    LOSE_REQUEST = "lose request"  # it never arrives, and the client hears nothing
    LOSE_ANSWER = "lose answer"  # it arrives, and the client hears nothing
    CUT_BEFORE = "cut before"  # the connection breaks instead
    CUT_AFTER = "cut after"  # the broker gets it and answers, then the connection breaks


@dataclass(slots=True)
class Rule:
    """What happens to requests that fit. `times`: to how many of them; None: to all until `lift`."""

    api: Api | None
    action: Action
    when: Callable[[Request], bool]
    times: int | None
    hits: list[Request] = field(default_factory=list)
    _proxy: Proxy | None = None
    _met: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, request: Request) -> bool:
        if self.times is not None and len(self.hits) >= self.times:
            return False
        return (self.api is None or request.api == self.api) and self.when(request)

    def hit(self, request: Request) -> None:
        self.hits.append(request)
        self._met.set()

    @property
    def met(self) -> bool:
        return self._met.is_set()

    def wait(self, limit_s: float = LIMIT_S) -> None:
        """Until the rule has met a request. Raises TimeoutError."""
        if not self._met.wait(limit_s):
            raise TimeoutError(f"no request met the rule: {self.action.value} {self.api!r} in {limit_s:g} s")

    def wait_answered(self, limit_s: float = LIMIT_S) -> None:
        """Until the broker has answered such a request, whether or not the client hears it. Raises TimeoutError."""
        if not self._answered.wait(limit_s):
            raise TimeoutError(f"the broker did not answer {self.api!r} in {limit_s:g} s")

    def release(self) -> None:
        """Let what is held go on to the broker; returns when it was written there."""
        assert self._proxy is not None
        self._proxy._call(self._proxy._release(self))

    def lift(self) -> None:
        """The rule counts no more."""
        self.times = 0


@dataclass(eq=False, slots=True)
class _Connection:
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    broker: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    client_id: str = ""
    waiting: dict[int, Rule] = field(default_factory=dict)  # correlation IDs whose answers a rule is about
    held: list[tuple[Rule, asyncio.Event]] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        self.client[1].transport.abort()
        self.broker[1].transport.abort()


class Proxy:
    """Listens on a free port of loopback. Usable as a context manager; leaves no thread, task or socket behind."""

    def __init__(self) -> None:
        self.port = 0
        self._target: tuple[str, int] | None = None
        self._rules: list[Rule] = []
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_off: Callable[[str], bool] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forward_to(self, target: tuple[str, int]) -> None:
        self._target = target

    # -- rules ------------------------------------------------------------------------------------------------------

    def rule(
        self,
        action: Action,
        api: Api | None = None,
        when: Callable[[Request], bool] = lambda _request: True,
        times: int | None = 1,
    ) -> Rule:
        rule = Rule(api, action, when, times, _proxy=self)
        self._rules.append(rule)
        return rule

    def hold(self, api: Api, when: Callable[[Request], bool] = lambda _request: True, times: int | None = 1) -> Rule:
        """Hold requests back until `release`. What follows on the same connection waits behind."""
        return self.rule(Action.HOLD, api, when, times)

    def clear(self) -> None:
        """No rules any more; what is held goes on; nobody is cut off."""
        rules, self._rules = self._rules, []
        for rule in rules:
            rule.lift()
            if rule.action in (Action.HOLD, Action.DETACH):
                rule.release()
        self._cut_off = None

    def cut_off(self, client: Callable[[str], bool] = lambda _client_id: True) -> None:
        """Break the connections of these clients (by client ID), and every one they make until `reconnect`."""
        self._cut_off = client
        self._call(self._cut())

    def reconnect(self) -> None:
        self._cut_off = None

    # -- inside: on the event loop -----------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(LIMIT_S)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _cut(self) -> None:
        for connection in list(self._connections):
            if self._is_cut_off(connection):
                connection.cut()

    def _is_cut_off(self, connection: _Connection) -> bool:
        return self._cut_off is not None and self._cut_off(connection.client_id)

    async def _release(self, rule: Rule) -> None:
        rule._released.set()
        for connection in list(self._connections):
            for held, written in connection.held:
                if held is rule:
                    await written.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side hung up, or the proxy closes: both ends are closed below
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._target is None:
            return
        broker = await asyncio.open_connection(*self._target)
        connection = _Connection((reader, writer), broker)
        self._connections.add(connection)
        answers = asyncio.ensure_future(self._answers(connection))
        try:
            await self._requests(connection)
        finally:
            self._connections.discard(connection)
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            connection.cut()

    async def _requests(self, connection: _Connection) -> None:
        """Client to broker, until the client hangs up; a request that is held keeps both ways open."""
        while True:
            frame = await _frame(connection.client[0])
            request = _parse(frame)
            connection.client_id = request.client_id
            if self._is_cut_off(connection):
                return
            rule = next((rule for rule in self._rules if rule.fits(request)), None)
            if rule is not None:
                rule.hit(request)
                if rule.action is Action.CUT_BEFORE:
                    return
                if rule.action is Action.LOSE_REQUEST:
                    continue
                connection.waiting[request.correlation] = rule
                if rule.action in (Action.HOLD, Action.DETACH):
                    if rule.action is Action.DETACH:
                        connection.client[1].transport.abort()
                    await self._hold(connection, rule, frame)
                    continue
            connection.broker[1].write(frame)
            await connection.broker[1].drain()

    async def _hold(self, connection: _Connection, rule: Rule, frame: bytes) -> None:
        written = asyncio.Event()
        connection.held.append((rule, written))
        try:
            await rule._released.wait()
            connection.broker[1].write(frame)
            await connection.broker[1].drain()
        finally:
            written.set()
        await connection.answered.wait()  # the client may be gone: then this connection ends next

    async def _answers(self, connection: _Connection) -> None:
        """Broker to client. A client that hung up hears nothing, but the broker is listened to until it does too."""
        client = connection.client[1]
        try:
            while True:
                frame = await _frame(connection.broker[0])
                rule = connection.waiting.pop(struct.unpack_from(">i", frame, 4)[0], None)
                if rule is not None:
                    rule._answered.set()
                    connection.answered.set()
                    if rule.action is Action.LOSE_ANSWER:
                        continue
                    if rule.action is Action.CUT_AFTER:
                        connection.cut()
                        return
                if not client.is_closing():
                    client.write(frame)
        finally:
            connection.answered.set()
            if all(written.is_set() for _rule, written in connection.held):
                client.transport.abort()  # the broker hung up: so do we, which ends `_requests`


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])


def _parse(frame: bytes) -> Request:
    api, _version, correlation, length = struct.unpack_from(">hhih", frame, 4)
    client_id = frame[14 : 14 + length].decode() if length > 0 else ""
    return Request(api, correlation, client_id, frame)
