"""The group member's consumer: heartbeats and joins in the background, callbacks only while it is polled."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from tests.simulation import stage
from tests.simulation.group import Joined
from tests.simulation.kernel import Event
from tests.simulation.log import Place
from tests.simulation.network import Handle, Reply
from tests.simulation.requests import SOCKET_TIMEOUT_S, at_once, raised

Callback = Callable[[Any, list[TopicPartition]], None]
JOIN_TIMEOUT_S = 60.0
AGAIN_US = 100_000
LEAVE_LIMIT_S = 1.0


class SimMember:
    """Stands for `confluent_kafka.Consumer` where it joins the group."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._process = stage.here()
        world = self._process.world
        self._kernel, self._broker, self._random = world.kernel, world.broker, world.random
        self._coordinator = self._broker.group_of(self._process.namespace)
        self._newer = config.get("group.protocol") == "consumer"
        self._instance: str | None = config.get("group.instance.id")
        self._session_us = int(world.settings.session_timeout_s * 1e6)
        self._every_us = self._process.clock.true_us(world.settings.heartbeat_s)
        self._group = str(config["group.id"])
        self._name = ""
        self._epoch = -1
        self._owned: frozenset[int] = frozenset()
        self._assigned: frozenset[int] = frozenset()  # as the group said last
        self._news: deque[tuple[str, frozenset[int]]] = deque()
        self._in_callback = False
        self._joining = False
        self._rejoin = False
        self._closed = False
        self._heard_us = 0
        self._beating: Event | None = None
        self._topic = ""
        self._on: dict[str, Callback] = {}
        self._process.member_name = lambda: self._name
        self._process.member_news = lambda: bool(self._news) and not self._in_callback

    # -- what the member calls --

    def subscribe(self, topics: list[str], on_assign: Callback, on_revoke: Callback, on_lost: Callback) -> None:
        (self._topic,) = topics
        self._on = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._join()

    def poll(self, _timeout_s: float = 0.0) -> None:
        if self._news and not self._in_callback:
            self._serve(*self._news.popleft())

    def consumer_group_metadata(self) -> bytes:
        tail = b"\0".join([self._group.encode(), self._name.encode(), (self._instance or "").encode(), b""])
        return b"CGMDv2:" + struct.pack("<i", self._epoch) + tail

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        fiber = self._kernel.current
        assert fiber is not None
        until_us = self._kernel.now_us + self._process.clock.true_us(timeout)
        places: list[Place] = [(item.topic, item.partition) for item in asked]
        while self._kernel.now_us < until_us:
            answer = self._process.world.network.call(
                self._process, "OffsetFetch", at_once(lambda: self._fetched(places)),
                min(until_us - self._kernel.now_us, int(SOCKET_TIMEOUT_S * 1e6)),
            )  # fmt: skip
            if isinstance(answer, list):
                return [
                    TopicPartition(*place, offset if offset >= 0 else -1001, metadata=metadata)
                    for place, (offset, metadata) in zip(places, answer, strict=True)
                ]
            fiber.block(min(until_us, self._kernel.now_us + self._random.randint(20_000, 100_000)))
        raise raised("_TIMED_OUT")

    def incremental_assign(self, _partitions: list[TopicPartition]) -> None:
        return None

    def incremental_unassign(self, _partitions: list[TopicPartition]) -> None:
        return None

    def pause(self, _partitions: list[TopicPartition]) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        lost = not self._name
        self._news.clear()
        if self._owned:
            self._callback("lost" if lost else "revoke", self._owned)
            self._owned = frozenset()
        self._kernel.call_off(self._beating)
        if self._name and self._instance is None:
            name = self._name
            self._process.world.network.call(
                self._process, "LeaveGroup", at_once(lambda: self._coordinator.leave(name)), int(LEAVE_LIMIT_S * 1e6)
            )
        self._name, self._epoch = "", -1

    # -- callbacks --

    def _serve(self, kind: str, numbers: frozenset[int]) -> None:
        self._callback(kind, numbers)
        if kind == "assign":
            self._owned |= numbers
        elif kind == "revoke":
            self._owned -= numbers
        else:
            self._owned = frozenset()
        if self._closed:
            return
        if self._newer:
            self._reconcile()
            self._beat_soon()
        elif kind != "assign" or self._rejoin:
            self._rejoin = True
            if not self._news:
                self._join()

    def _callback(self, kind: str, numbers: frozenset[int]) -> None:
        self._in_callback = True
        try:
            self._on[kind](self, [TopicPartition(self._topic, number) for number in sorted(numbers)])
        finally:
            self._in_callback = False

    def _tell(self, kind: str, numbers: frozenset[int]) -> None:
        self._news.append((kind, numbers))
        self._process.kick()

    def _lose(self, why: str) -> None:
        self._process.say(f"member {self._name}: lost ({why})")
        self._name, self._epoch = "", -1
        self._assigned = frozenset()
        self._news.clear()
        self._joining = self._rejoin = False
        if self._owned or self._in_callback:
            self._tell("lost", self._owned)
        else:
            self._join()

    # -- joining --

    def _join(self) -> None:
        if self._joining or self._closed:
            return
        self._rejoin = False
        if self._newer:
            self._beat()
            return
        self._joining = True
        name, owned, session_us = self._name, self._owned, self._session_us

        def handle(reply: Reply) -> None:
            if self._kernel.now_us < self._broker.group_down_until_us:
                reply("NOT_COORDINATOR")
            else:
                self._coordinator.join(name, self._instance, owned, session_us, reply)

        self._send("JoinGroup", handle, self._joined, JOIN_TIMEOUT_S)

    def _joined(self, answer: Any) -> None:
        self._joining = False
        if self._closed:
            return
        if not isinstance(answer, Joined):
            if answer == "UNKNOWN_MEMBER_ID":
                self._lose("join: unknown")
            else:
                self._after(AGAIN_US, self._join)
            return
        self._heard_us = self._kernel.now_us
        self._name, self._epoch = answer.member, answer.epoch
        self._process.say(f"member {self._name}: generation {self._epoch}, {sorted(answer.assigned)}")
        going, coming = self._owned - answer.assigned, answer.assigned - self._owned
        if going:
            self._tell("revoke", going)
        if coming or not going:
            self._tell("assign", coming)
        self._beat_after(self._every_us)

    # -- heartbeats --

    def _beat_after(self, delay_us: int) -> None:
        self._kernel.call_off(self._beating)
        self._beating = self._after(delay_us, self._beat)

    def _beat_soon(self) -> None:
        self._beat_after(1_000)

    def _beat(self) -> None:
        if self._closed:
            return
        if self._newer:
            self._newer_beat()
            return
        if not self._name:
            return
        self._beat_after(self._every_us)
        if self._joining:
            return
        if self._kernel.now_us - self._heard_us > self._session_us:
            self._lose("no answer for a session")
            return
        name, epoch = self._name, self._epoch
        self._send("Heartbeat", self._at_group(lambda: self._coordinator.heartbeat(name, epoch)), self._beat_answered)

    def _beat_answered(self, answer: Any) -> None:
        if self._closed or not self._name or self._joining:
            return
        if answer is None:
            self._heard_us = self._kernel.now_us
        elif answer == "REBALANCE_IN_PROGRESS":
            self._heard_us = self._kernel.now_us
            if self._news or self._in_callback:
                self._rejoin = True
            else:
                self._join()
        elif answer in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
            self._lose(str(answer))

    def _newer_beat(self) -> None:
        self._beat_after(self._every_us)
        if not self._name and (self._news or self._in_callback):
            return  # thrown out: it joins again only when the lane was told, as the client library does
        name, epoch, owned = self._name, max(self._epoch, 0), self._owned

        def answer() -> Any:
            return self._coordinator.beat(name, epoch, self._instance, owned, self._session_us)

        self._send("ConsumerGroupHeartbeat", self._at_group(answer), self._newer_answered)

    def _newer_answered(self, answer: Any) -> None:
        if self._closed:
            return
        if isinstance(answer, Joined):
            if self._name not in ("", answer.member) or answer.epoch < self._epoch:
                return  # of an earlier membership
            if answer.epoch != self._epoch or answer.assigned != self._assigned:
                self._process.say(f"member {answer.member}: epoch {answer.epoch}, {sorted(answer.assigned)}")
            self._name, self._epoch, self._assigned = answer.member, answer.epoch, answer.assigned
            self._reconcile()
        elif answer in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH") and self._name:
            self._lose(str(answer))

    def _reconcile(self) -> None:
        if self._news or self._in_callback or not self._name:
            return
        going, coming = self._owned - self._assigned, self._assigned - self._owned
        if going:
            self._tell("revoke", going)
        elif coming:
            self._tell("assign", coming)

    # -- inside --

    def _fetched(self, places: list[Place]) -> Any:
        if self._kernel.now_us < self._broker.group_down_until_us:
            return "NOT_COORDINATOR"
        found = [self._coordinator.fetch(place) for place in places]
        return "UNSTABLE_OFFSET_COMMIT" if None in found else found

    def _at_group(self, answer: Callable[[], Any]) -> Handle:
        return at_once(
            lambda: "NOT_COORDINATOR" if self._kernel.now_us < self._broker.group_down_until_us else answer()
        )

    def _send(self, kind: str, handle: Handle, on_reply: Reply, timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._process.world.network.send(self._process, kind, handle, on_reply, self._process.clock.true_us(timeout_s))

    def _after(self, delay_us: int, action: Callable[[], None]) -> Event:
        return self._kernel.after(delay_us, lambda: self._process.when_running(action))
