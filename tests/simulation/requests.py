"""What the client library does on its own: it asks again, and notes that a connection broke."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.simulation.network import RESET, TIMEOUT, Handle, Reply
from tests.simulation.process import Process

SOCKET_TIMEOUT_S = 3.0
AGAIN_US = (1_000, 40_000)
_AGAIN = {"NOT_COORDINATOR": (30_000, 120_000), "CONCURRENT_TRANSACTIONS": (1_000, 20_000)}


def raised(name: str, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    code = getattr(KafkaError, name)
    return KafkaException(KafkaError(code, name, fatal=fatal, retriable=retriable, txn_requires_abort=abort))


def at_once(answer: Callable[[], Any]) -> Handle:
    """A request that the broker answers when it comes."""

    def handle(reply: Reply) -> None:
        reply(answer())

    return handle


def ask(
    process: Process, kind: str, handle: Handle, until_us: int, on_break: Callable[[], None], sender: str = ""
) -> Any:
    """The answer; TIMEOUT when `until_us` (true time) has come. Copies that were given up may still arrive."""
    kernel, random = process.world.kernel, process.world.random
    fiber = kernel.current
    assert fiber is not None
    while kernel.now_us < until_us:
        left_us = until_us - kernel.now_us
        answer = process.world.network.call(
            process, kind, handle, min(process.clock.true_us(SOCKET_TIMEOUT_S), left_us), sender
        )
        if answer is TIMEOUT or answer is RESET:
            on_break()
            pause_us = AGAIN_US
        elif isinstance(answer, str) and answer in _AGAIN:
            pause_us = _AGAIN[answer]
        else:
            return answer
        fiber.block(min(until_us, kernel.now_us + random.randint(*pause_us)))
    return TIMEOUT
