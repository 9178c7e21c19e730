"""The app whose functions the runners' tests run. It stands in for a user's `fencepost.App`."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fencepost.run_context import RunContext

_FUNCTIONS: dict[str, Callable[[RunContext], Any]] = {}


class _App:
    def handlers(self) -> dict[str, Callable[[RunContext], Any]]:
        return _FUNCTIONS

    def declared(self) -> list[dict[str, Any]]:
        return [{"task": name} for name in _FUNCTIONS]


app = _App()


def function(run: Callable[[RunContext], Any]) -> Callable[[RunContext], Any]:
    _FUNCTIONS[run.__name__] = run
    return run


def _witness(path: str) -> int:
    """Opens a FIFO for writing. Its reader sees the end once every process that holds it is gone."""
    fd = os.open(path, os.O_WRONLY)
    os.set_inheritable(fd, True)
    return fd


def _hang() -> None:
    while True:
        signal.pause()


def _say_ready(ctx: RunContext) -> None:
    ctx.log("ready")


@function
def noop(ctx: RunContext) -> None:
    return None


@function
def echo(ctx: RunContext) -> Any:
    return ctx.payload


@function
def describe(ctx: RunContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "epoch": ctx.epoch,
        "attempt": ctx.attempt,
        "payload": ctx.payload,
        "headers": dict(ctx.headers),
        "scheduled_for": str(ctx.scheduled_for),
        "idempotency_key": ctx.idempotency_key,
        "last_checkpoint": ctx.last_checkpoint,
        "has_deadline": ctx.deadline is not None,
        "cancelled": ctx.cancelled,
        "pid": os.getpid(),
        "sid": os.getsid(0),
    }


@function
def prints(ctx: RunContext) -> None:
    print("to out")
    print("to err", file=sys.stderr)
    sys.stdout.buffer.write("bytes: ä\n".encode())
    ctx.log("to log")


@function
def prints_a_lot(ctx: RunContext) -> None:
    for _ in range(ctx.payload):
        print("x" * 1023)


@function
def prints_through_a_child(ctx: RunContext) -> None:
    subprocess.run(["/bin/echo", "from a child"], check=True)


@function
def fails(ctx: RunContext) -> None:
    raise ValueError("no good")


@function
def exits(ctx: RunContext) -> None:
    sys.exit(0)


@function
def dies(ctx: RunContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@function
def returns_a_set(ctx: RunContext) -> Any:
    return {1, 2}


@function
def returns_much(ctx: RunContext) -> Any:
    return "x" * (64 * 1024)


@function
def hangs(ctx: RunContext) -> None:
    _say_ready(ctx)
    _hang()


@function
def hangs_if_told(ctx: RunContext) -> None:
    if ctx.payload:
        hangs(ctx)


@function
def hangs_holding(ctx: RunContext) -> None:
    _witness(ctx.payload)
    _say_ready(ctx)
    _hang()


@function
def forks_holding(ctx: RunContext) -> None:
    """A child in the run's own process group holds the witness."""
    if os.fork() == 0:
        _witness(ctx.payload)
        _hang()
    _say_ready(ctx)
    _hang()


@function
def writes_times(ctx: RunContext) -> None:
    """Writes the time on CLOCK_BOOTTIME again and again: the last one is when it was last alive."""
    fd = os.open(ctx.payload, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _say_ready(ctx)
    while True:
        os.write(fd, b"%.6f\n" % time.clock_gettime(time.CLOCK_BOOTTIME))
        time.sleep(0.005)


@function
def until_cancelled(ctx: RunContext) -> str:
    _say_ready(ctx)
    while not ctx.cancelled:
        time.sleep(0.005)
    return "left in time"


@function
def checkpoints(ctx: RunContext) -> Any:
    for step in range(3):
        ctx.checkpoint({"step": step})
    return ctx.last_checkpoint


@function
def checkpoints_too_much(ctx: RunContext) -> None:
    ctx.checkpoint("x" * (64 * 1024))


@function
def daemonises(ctx: RunContext) -> None:
    """A grandchild in a session of its own holds the witness; the run goes on, or ends when payload says so."""
    _daemon_holding(ctx.payload["witness"])
    _say_ready(ctx)
    if not ctx.payload.get("ends"):
        _hang()


def _daemon_holding(path: str) -> None:
    fd = _witness(path)
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid() if os.getpid() != os.getsid(0) else None
            _hang()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(fd)


@function
def forks_and_forgets(ctx: RunContext) -> None:
    """The child is not waited for, and leaves a grandchild that ends by itself."""
    if os.fork() == 0:
        os.fork()
        os._exit(0)


@function
def lists_descriptors(ctx: RunContext) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the listing's own
    return found


@function
def opens_a_client_and_forks(ctx: RunContext) -> list[str]:
    """What a task with a producer of its own does: a socket with a thread behind it, and children by fork."""
    with socket.create_connection(("127.0.0.1", ctx.payload)) as client:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(client.recv(16)))
        client.sendall(b"hello")
        thread.start()
        thread.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return [got[0].decode(), *pool.map(str, [1, 2])]


@function
def keeps_a_child(ctx: RunContext) -> int:
    """A Popen object that is still waited for must give the right exit code, whoever reaps in between."""
    child = subprocess.Popen(["/bin/sh", "-c", "exit 7"])
    _KEPT.append(child)
    return child.pid


_KEPT: list[subprocess.Popen[bytes]] = []


@function
def asks_for_kept_child(ctx: RunContext) -> int:
    return _KEPT.pop().wait()


@function
def holds_the_interpreter(ctx: RunContext) -> None:
    _say_ready(ctx)
    time.sleep(0.2)  # so that the line gets out
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # which would cut the call short
    ctypes.PyDLL(None).sleep(60)


@function
async def async_echo(ctx: RunContext) -> Any:
    await asyncio.sleep(0)
    return ctx.payload


@function
async def async_prints(ctx: RunContext) -> None:
    for _ in range(3):
        print(ctx.task_id)
        await asyncio.sleep(0)


@function
async def async_waits(ctx: RunContext) -> None:
    _say_ready(ctx)
    await asyncio.Event().wait()


@function
async def async_swallows(ctx: RunContext) -> str:
    """Takes its cancellation and ends as if nothing had happened."""
    _say_ready(ctx)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "all is well"
    return "never"


@function
async def async_stubborn(ctx: RunContext) -> None:
    _say_ready(ctx)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@function
async def async_fails(ctx: RunContext) -> None:
    raise ValueError("no good")


@function
def loses_its_connection(ctx: RunContext) -> None:
    raise ConnectionResetError("gone")


@function
async def async_loses_its_connection(ctx: RunContext) -> None:
    raise ConnectionResetError("gone")


@function
def silent(ctx: RunContext) -> None:
    while not ctx.cancelled:
        time.sleep(0.02)


@function
async def async_silent(ctx: RunContext) -> None:
    await asyncio.Event().wait()


@function
def beats(ctx: RunContext) -> None:
    for _ in range(ctx.payload["pauses"]):
        time.sleep(ctx.payload["pause_s"])
        ctx.heartbeat()


@function
async def async_beats(ctx: RunContext) -> None:
    for _ in range(ctx.payload["pauses"]):
        await asyncio.sleep(ctx.payload["pause_s"])
        ctx.heartbeat()


@function
def prints_now_and_then(ctx: RunContext) -> None:
    for _ in range(ctx.payload["pauses"]):
        time.sleep(ctx.payload["pause_s"])
        print("still there")


@function
def sleeps(ctx: RunContext) -> None:
    time.sleep(ctx.payload)


@function
def lists_payloads(ctx: RunContext) -> Any:
    return [ctx.payload, list(ctx.payloads)]


@function
async def async_lists_payloads(ctx: RunContext) -> Any:
    return [ctx.payload, list(ctx.payloads)]
