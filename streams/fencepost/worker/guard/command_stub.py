"""The parent of one command: it starts it, passes on what is asked, holds the timer that exec would delete."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from types import FrameType
from typing import Any

from fencepost import codec
from fencepost.core.times import format_ms
from fencepost.run_context import current_namespace
from fencepost.worker.guard import linux, wire
from fencepost.worker.guard.deadlines import END_EARLY_S
from fencepost.worker.guard.group_death import GroupDeath
from fencepost.worker.guard.page import LeaseTable
from fencepost.worker.guard.sender import Sender
from fencepost.worker.guard.strict import StrictStop
from fencepost.worker.guard.wire import Field

_ENV_MAX_BYTES = 100_000  # Linux takes 128 KiB for one variable; a larger payload is on standard input only
_COULD_NOT_RUN = 127


class CommandStub:
    def __init__(
        self,
        in_fd: int,
        out_fd: int,
        table: LeaseTable,
        strict: bool,
        keep_env: tuple[str, ...],
        groups: GroupDeath,
    ) -> None:
        self._in = wire.Reader(in_fd)
        self._sender = Sender(out_fd)
        self._table = table
        self._strict = StrictStop(table) if strict else None
        self._keep_env = keep_env
        self._groups = groups
        self._why: int | None = None  # the command was asked to stop
        self._asked = False
        self._signals, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGTERM, self._on_ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # held back since the fork, see zygote.py

    def serve(self) -> None:
        """Returns after the only run."""
        poll = select.poll()
        poll.register(self._in.fd, select.POLLIN)
        runs: list[Any] = []
        while not runs:
            poll.poll()
            messages = self._in.read()
            if self._in.ended:
                return
            runs = [run for message in messages if message[0] == wire.RUNS for run in message[1]]
            if any(message[0] == wire.STOP for message in messages):
                self._why = wire.STOPPED
        self._run(runs[0])
        self._sender.flush()

    def _run(self, run: Any) -> None:
        token, slot, life_s = run[Field.TOKEN], run[Field.SLOT], run[Field.LIFE_S]
        if self._why is not None:
            self._sender.ended(token, self._why, None, None, 0, None)
            return
        if linux.boot_s() >= self._table.get(slot) + life_s - END_EARLY_S:
            self._sender.ended(token, wire.REFUSED, None, None, 0, None)
            return
        if self._strict is not None:
            self._strict.hold({(slot, life_s)})
        began = time.perf_counter()
        try:
            child = self._start(run)
        except OSError as error:
            text = f"{run[Field.TARGET][0][0]}: {error.strerror or error}"
            self._sender.ended(token, wire.FAILED, None, text, 0, _COULD_NOT_RUN)
            return
        self._groups.cover(child.pid)
        if run[Field.BEATS]:
            self._sender.beat(token)
        exit_code = self._wait(child, run)
        took_us = int((time.perf_counter() - began) * 1e6)
        code = self._asked_why(wire.SUCCEEDED if exit_code == 0 else wire.FAILED)
        self._sender.ended(token, code, None, None, took_us, exit_code)

    def _asked_why(self, otherwise: int) -> int:
        return otherwise if self._why is None else self._why

    def _start(self, run: Any) -> subprocess.Popen[bytes]:
        argv, executable, _, cwd = run[Field.TARGET]
        payload = codec.dumps(run[Field.PAYLOAD])
        stdin = os.memfd_create("fencepost-payload")
        os.write(stdin, payload)
        os.lseek(stdin, 0, os.SEEK_SET)
        stub = os.getpid()

        def before_exec() -> None:
            linux.die_with_parent()
            if os.getppid() != stub:
                os._exit(_COULD_NOT_RUN)

        try:
            return subprocess.Popen(
                argv,
                executable=executable,
                stdin=stdin,
                env=self._environment(run, payload),
                cwd=cwd,
                process_group=0,
                preexec_fn=before_exec,  # one thread here
            )
        finally:
            os.close(stdin)

    def _environment(self, run: Any, payload: bytes) -> dict[str, str]:
        env = {name: os.environ[name] for name in self._keep_env if name in os.environ}
        env.update(run[Field.TARGET][2])
        env["FENCEPOST_NAMESPACE"] = current_namespace()
        env["FENCEPOST_TASK"] = run[Field.TASK]
        env["FENCEPOST_EPOCH"] = str(run[Field.EPOCH])
        env["FENCEPOST_ATTEMPT"] = str(run[Field.ATTEMPT])
        env["FENCEPOST_IDEMPOTENCY_KEY"] = run[Field.KEY]
        if len(payload) <= _ENV_MAX_BYTES:
            env["FENCEPOST_PAYLOAD"] = payload.decode()
        if run[Field.SCHEDULED_FOR_MS] is not None:
            env["FENCEPOST_SCHEDULED_FOR"] = format_ms(run[Field.SCHEDULED_FOR_MS])
        if run[Field.CHECKPOINT] is not None:
            checkpoint = codec.dumps(run[Field.CHECKPOINT])
            env["FENCEPOST_LAST_CHECKPOINT"] = checkpoint.decode()
        more = run[Field.MORE]
        if more is not None and "cycle" in more:
            env["FENCEPOST_CYCLE"] = more["cycle"]
            env["FENCEPOST_UPSTREAM"] = codec.dumps(more["upstream"] or {}).decode()
            if "shard" in more:
                env["FENCEPOST_SHARD"], env["FENCEPOST_SHARDS"] = str(more["shard"]), str(more["shards"])
            if "worker" in more:
                env["FENCEPOST_WORKER"] = more["worker"]
        return env

    def _wait(self, child: subprocess.Popen[bytes], run: Any) -> int:
        """Until the command has ended; its exit code, 128 + n if signal n ended it."""
        grace_s = run[Field.GRACE_S]
        ended = os.pidfd_open(child.pid)
        poll = select.poll()
        for fd in (self._in.fd, ended, self._signals):
            poll.register(fd, select.POLLIN)
        timeout_s = run[Field.TIMEOUT_S]
        ask_at = None if timeout_s is None else linux.boot_s() + timeout_s
        kill_at: float | None = None
        while True:
            due = kill_at if self._why is not None else ask_at
            wait_ms = None if due is None else max(0.0, (due - linux.boot_s()) * 1000 + 1)
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            if ended in ready:
                break
            _reap_orphans(child.pid)
            why = self._reason(ready, ask_at)
            if why is not None and self._why is None:
                self._why, kill_at = why, linux.boot_s() + grace_s
                os.killpg(child.pid, signal.SIGTERM)
            elif kill_at is not None and linux.boot_s() >= kill_at:
                os.killpg(child.pid, signal.SIGKILL)
                kill_at = None
            if self._in.ended:
                poll.unregister(self._in.fd)  # the worker is gone: the guard is on its way
                self._in.ended = False
        os.close(ended)
        _, status = os.waitpid(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def _reason(self, ready: set[int], ask_at: float | None) -> int | None:
        if self._in.fd in ready and any(message[0] == wire.STOP for message in self._in.read()):
            return wire.STOPPED
        if self._signals in ready:
            _drain(self._signals)
            if self._asked:
                return wire.FENCED
        if ask_at is not None and linux.boot_s() >= ask_at:
            return wire.TIMED_OUT
        return None

    def _on_ask(self, _number: int, _frame: FrameType | None) -> None:
        """The guard says that the lease is about to end."""
        self._asked = True


def _drain(fd: int) -> None:
    while True:
        try:
            if len(os.read(fd, 512)) < 512:
                return
        except BlockingIOError:
            return


def _reap_orphans(child: int) -> None:
    """Daemons that the command left to this process and that ended. The command itself is waited for elsewhere."""
    while True:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None or info.si_pid == child:
            return
        os.waitpid(info.si_pid, 0)
