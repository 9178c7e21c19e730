"""What the scenarios' workers run. Every run leaves lines in a file that the scheduler knows nothing of."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import psutil

from fencepost.app import App
from fencepost.demo.beat import beat
from fencepost.run_context import RunContext

WITNESS_VARIABLE = "SCENARIO_WITNESS"

app = App("scenarios")


@app.function()
def work(ctx: RunContext) -> None:
    """Write that it lives for `seconds`, or until the file `until` is there; heed a stop unless it is `stubborn`."""
    payload = ctx.payload or {}
    slot_ms = None if ctx.scheduled_for is None else round(ctx.scheduled_for.timestamp() * 1000)
    until, stubborn = payload.get("until"), payload.get("stubborn", False)

    def each(_so_far_s: float) -> bool:
        return (stubborn or not ctx.cancelled) and not (until and os.path.exists(until))

    beat(os.environ[WITNESS_VARIABLE], ctx.task_id, ctx.epoch, slot_ms, float(payload.get("seconds", 0.05)), each)


@app.task("t/*")
def plain(ctx: RunContext) -> None:
    """Any ID under `t/`, by triggers."""
    work(ctx)


@app.task("net/*")
def writes_over_the_network(ctx: RunContext) -> None:
    """Sends its epoch to the resource at `host`:`port` again and again, each on a connection of its own."""
    line = f"{ctx.epoch}\n".encode()
    while not ctx.cancelled:
        try:
            with socket.create_connection((ctx.payload["host"], ctx.payload["port"]), timeout=0.2) as connection:
                connection.sendall(line)
        except OSError:
            continue  # cut off, or the test is over
        time.sleep(0.02)


@app.task("kafka/*", isolation="own")
def talks_to_kafka(ctx: RunContext) -> dict[str, Any]:
    """A client of its own, before and after a fork: what people do in tasks."""
    return _talk(ctx.payload["bootstrap"], ctx.payload["topic"])


@app.task("shared-kafka/*")
def talks_to_kafka_in_a_shared_process(ctx: RunContext) -> dict[str, Any]:
    return _talk(ctx.payload["bootstrap"], ctx.payload["topic"])


def _talk(bootstrap: str, topic: str) -> dict[str, Any]:
    import multiprocessing

    port = int(bootstrap.rpartition(":")[2])
    inherited = [str(peer) for peer in _peers() if peer[1] == port]
    own = _send(bootstrap, topic, b"parent")
    # A process of its own by fork, with a client of its own; the parent's is closed by then, as it must be.
    child = multiprocessing.get_context("fork").Process(target=_send, args=(bootstrap, topic, b"child"))
    child.start()
    child.join()
    return {"inherited": inherited, "left": own, "child": child.exitcode}


def _peers() -> list[tuple[str, int]]:
    """Where the sockets lead that this process holds."""
    connections = psutil.Process().net_connections(kind="inet")
    return [tuple(item.raddr) for item in connections if item.raddr and item.type == socket.SOCK_STREAM]  # type: ignore[misc]


def _send(bootstrap: str, topic: str, value: bytes) -> int:
    """How many records were left unsent."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, b"key")
    left: int = producer.flush(20)
    if left:
        raise SystemExit(3)
    return left
