"""A worker process: guard and runners first, then Kafka, then its lanes, until it is told to stop.

SIGTERM or SIGINT: start nothing more, let runs end for `stop_limit_s`, end the rest, give partitions back, leave.
A second signal: end runs at once. A third, or a stop that hangs: exit without ceremony; the guard sweeps.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from types import FrameType
from typing import Any

import structlog

from fencepost.codec import BadRecord
from fencepost.core.lease import Lease
from fencepost.core.task import Definition
from fencepost.kafka.errors import Die, KafkaProblem, NotInitialised, RetryLater, WrongNamespace
from fencepost.kafka.namespace import NamespaceInfo, load_namespace
from fencepost.kafka.topics import Topics
from fencepost.kafka.transaction import transactional_ids
from fencepost.settings import Settings
from fencepost.wire.definition import definition_from_json
from fencepost.worker.clock import Clock
from fencepost.worker.context import LaneContext
from fencepost.worker.declared import Declared
from fencepost.worker.guard.client import GuardedRunners, GuardLost
from fencepost.worker.guard.settings import CallSettings, RunnerSettings
from fencepost.worker.http import HttpServer
from fencepost.worker.identity import new_identity
from fencepost.worker.lane import Lane
from fencepost.worker.machine_checks import clock_warning
from fencepost.worker.metrics import PrometheusMeters
from fencepost.worker.node_fence import NodeFence
from fencepost.worker.orders import Runners
from fencepost.worker.printer import OutputShipper
from fencepost.worker.roster import About, Load, Roster, whereabouts

CONNECT_FIRST_S = 0.5
CONNECT_MOST_S = 10.0
# Records have no cycles, so the collector finds nothing in them; with its stock thresholds it looks through all tasks
# again and again, which took 40 % of the lane's time and would hold a lane of a million tasks up for seconds.
COLLECT_AFTER = (50_000, 20, 1000)
CLOSE_LIMIT_S = 15.0
LEAVE_LIMIT_S = 2.0
LONGEST_CALL_S = 45.0  # a transaction against a broker that does not answer: flush, offsets, end, abort


class Exit(IntEnum):
    """Exit codes of a worker."""

    STOPPED = 0
    FAILED = 1
    CUT_OFF = 3  # the stop took too long


@dataclass(slots=True)
class Stop:
    """How far the wish to stop has gone: counted signals."""

    signals: int = 0
    changed: threading.Event = field(default_factory=threading.Event)


def main(settings: Settings) -> int:
    """Run a worker until it is told to stop. Returns the exit code."""
    return Worker(settings).run()


class Worker:
    """One process with one or more lanes, each with a guard and runners of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = new_identity(settings.worker_id)
        self._topics = Topics(settings.namespace)
        self._log = structlog.get_logger("fencepost.worker").bind(worker=self._identity.worker)
        self._stop = Stop()
        self._meters = PrometheusMeters(self._identity.worker)
        self._http = HttpServer(settings, self._live, self._ready, self._meters.exposition, self._log)
        self._lanes: list[Lane] = []
        self._failures: list[BaseException] = []

    def run(self) -> int:
        """Until told to stop. Raises AppError and GuardError where the runners cannot be started."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        gc.set_threshold(*COLLECT_AFTER)
        slots = max(1, self._settings.slots // self._settings.lanes)
        with ExitStack() as held:
            runners = []
            for _ in range(self._settings.lanes):
                runners.append(GuardedRunners(_runner_settings(self._settings, slots)))
                held.callback(runners[-1].close, 0.0)
            try:
                self._http.start()
                return self._with_kafka(runners, slots)
            except KafkaProblem as problem:
                self._say(problem)
                return Exit.FAILED
            finally:
                self._http.stop()

    def _with_kafka(self, runners: list[GuardedRunners], slots: int) -> int:
        roster = self._roster(runners)
        with _Beating(runners):
            info = self._connect(roster)
        if info is None:
            return Exit.STOPPED
        shipper = OutputShipper(self._settings, self._topics.logs, info.partitions, self._identity.worker, self._log)
        threads = self._start_lanes(info, runners, slots, shipper, roster)
        roster.start()
        try:
            return self._wait(threads, roster)
        finally:
            shipper.close(LEAVE_LIMIT_S)
            roster.leave(LEAVE_LIMIT_S)

    def _roster(self, runners: list[GuardedRunners]) -> Roster:
        mechanism = runners[0].mechanism
        notes = tuple(dict.fromkeys((*mechanism.notes, *filter(None, [clock_warning()]))))
        for note in notes:
            self._log.warning("weaker than it could be", what=note)
        handlers = (*sorted(runners[0].handlers), *self._settings.commands, *self._settings.call_hosts)
        about = About(handlers, {"containment": mechanism.containment, "scheduling": mechanism.scheduling}, notes)
        return Roster(self._settings, self._topics, self._identity, about, self._load, self._log)

    def _load(self) -> Load:
        loads = [lane.load for lane in self._lanes]
        return Load(
            sum(load.in_flight for load in loads),
            tuple(sorted(number for load in loads for number in load.partitions)),
            tuple(name for load in loads for name in load.lanes),
        )

    def _live(self) -> tuple[bool, dict[str, Any]]:
        return not self._failures, {"failures": [type(failure).__name__ for failure in self._failures]}

    def _ready(self) -> tuple[bool, dict[str, Any]]:
        ready = {f"lane {ordinal}": lane.ready for ordinal, lane in enumerate(self._lanes)}
        return bool(ready) and all(ready.values()) and not self._stop.signals, {
            "lanes": ready,
            "stopping": bool(self._stop.signals),
        }

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.signals += 1
        self._stop.changed.set()
        if self._stop.signals >= 3:
            os._exit(Exit.CUT_OFF)

    def _connect(self, roster: Roster) -> NamespaceInfo | None:
        """Wait for Kafka, as long as it takes, and announce this worker. None: told to stop meanwhile."""
        delay_s = CONNECT_FIRST_S
        while not self._stop.signals:
            try:
                info = load_namespace(self._settings)
                roster.announce()
            except (NotInitialised, WrongNamespace, Die):
                raise
            except KafkaProblem as problem:
                at = self._settings.bootstrap
                self._log.warning("Kafka does not answer; trying again", bootstrap=at, in_s=delay_s, why=str(problem))
                self._stop.changed.wait(delay_s)
                delay_s = min(CONNECT_MOST_S, delay_s * 2)
                continue
            return info
        return None

    def _start_lanes(
        self, info: NamespaceInfo, runners: list[GuardedRunners], slots: int, shipper: OutputShipper, roster: Roster
    ) -> list[threading.Thread]:
        threads = []
        for ordinal, each in enumerate(runners):
            context = self._context(info, each, ordinal, slots)
            lane = Lane(context, info.group_protocol, shipper.take, roster.newer_incarnation)
            self._lanes.append(lane)
            thread = threading.Thread(target=self._run_lane, args=(lane, context), name=f"lane-{ordinal}")
            thread.start()
            threads.append(thread)
        return threads

    def _context(self, info: NamespaceInfo, runners: GuardedRunners, ordinal: int, slots: int) -> LaneContext:
        settings = replace(self._settings, session_timeout_s=info.session_timeout_s)
        lane = self._identity.lane_id(ordinal)
        log = self._log.bind(lane=lane)
        return LaneContext(
            settings=settings,
            topics=self._topics,
            partition_count=info.partitions,
            handover_limit_s=settings.handover_limit(info.group_protocol),
            identity=self._identity,
            ordinal=ordinal,
            lane=lane,
            ring=transactional_ids(settings.namespace, self._identity.worker, ordinal),
            runners=runners,
            declared=Declared(self._declared(runners), runners.handlers),
            clock=Clock(),
            lease=Lease(settings.lease_ttl_s, settings.renewal_s),
            meters=self._meters,
            log=log,
            node_fence=NodeFence(
                settings.fence_command,
                settings.fence_timeout_s,
                namespace=settings.namespace,
                own_worker=self._identity.worker,
                find=partial(whereabouts, settings, self._topics.workers),
                meters=self._meters,
                log=log,
            ),
            topic_ids={name: info.topic_ids[name] for name in self._topics.guarded if name in info.topic_ids},
        )

    def _declared(self, runners: GuardedRunners) -> list[Definition]:
        """What the app declares; to a pool it comes from the namespace, like everything that is defined."""
        return [] if self._topics.pool is not None else declared_definitions(runners.declared)

    def _run_lane(self, lane: Lane, context: LaneContext) -> None:
        try:
            with _Beating([context.runners]):
                self._open(lane, context)
            self._serve(lane)
            lane.close(self._settings.stop_limit_s)
            context.runners.close(0.0)  # other lanes may drain on, and this one beats no more
        except BaseException as failure:  # noqa: BLE001 - handed to the main thread, which says it and exits
            self._failures.append(failure)
        finally:
            self._stop.changed.set()

    def _open(self, lane: Lane, context: LaneContext) -> None:
        while not self._stop.signals:
            try:
                lane.open()
            except RetryLater as problem:
                context.log.warning("Kafka does not answer; trying again", why=str(problem))
                continue
            return

    def _serve(self, lane: Lane) -> None:
        """Turn after turn; then, once told to stop, until the runs have ended or the limit has passed."""
        while not self._stop.signals and not self._failures:
            lane.turn()
        lane.drain()
        until_s = time.monotonic() + self._settings.stop_limit_s
        asked = False
        while not lane.idle:
            late = time.monotonic() > until_s or self._stop.signals > 1
            if late and not asked:
                asked = True
                lane.end_runs(0.0 if self._stop.signals > 1 else 1.0)
            lane.turn()

    def _wait(self, threads: list[threading.Thread], roster: Roster) -> int:
        """Until the lanes are done; bounded once a stop was asked for."""
        cut_off_s: float | None = None
        while any(thread.is_alive() for thread in threads):
            if cut_off_s is None:
                self._stop.changed.wait(0.5)
                if self._stop.signals or self._failures:
                    cut_off_s = time.monotonic() + self._settings.stop_limit_s + CLOSE_LIMIT_S
                    self._log.info("stopping", limit_s=self._settings.stop_limit_s)
                    roster.set_status("draining")
                continue
            if time.monotonic() > cut_off_s:
                self._log.error("the stop took too long; cut off")
                os._exit(Exit.CUT_OFF)
            for thread in threads:
                thread.join(0.05)
        for failure in self._failures:
            self._say(failure)
        return Exit.FAILED if self._failures else Exit.STOPPED

    def _say(self, failure: BaseException) -> None:
        if isinstance(failure, KafkaProblem | GuardLost):
            self._log.error("the worker ends", why=str(failure), kind=type(failure).__name__)
        else:
            self._log.error("the worker ends on a bug", exc_info=failure)


class _Beating:
    """Beats for runners while nothing runs yet and the lanes' loops have not begun: waiting for Kafka may take long."""

    def __init__(self, runners: Sequence[Runners]) -> None:
        self._runners = runners
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beat")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(0.2):
            for each in self._runners:
                each.beat()


def declared_definitions(declared: list[dict[str, Any]]) -> list[Definition]:
    """What the app declares, as definitions. Raises BadRecord naming the task."""
    definitions = []
    for body in declared:
        try:
            definitions.append(definition_from_json(str(body["task"]), body))
        except BadRecord as bad:
            raise BadRecord(f"task {body.get('task')!r} of the app: {bad.reason}", bad.field) from bad
    return definitions


def _runner_settings(settings: Settings, slots: int) -> RunnerSettings:
    return RunnerSettings(
        app=settings.app,
        namespace=Topics(settings.namespace).main,  # epochs are of the task, wherever it runs
        slots=slots,
        shared_processes=settings.shared_processes,
        margin_s=settings.margin_s,
        beat_ttl_s=max(settings.lease_ttl_s, LONGEST_CALL_S),
        commands=settings.commands,
        keep_env=settings.keep_env,
        calls=CallSettings(settings.call_hosts, settings.call_ca_file, settings.call_cert_file, settings.call_key_file),
        uid=settings.uid,
        gid=settings.gid,
        strict_stop=settings.strict_stop,
        containment=settings.containment,
    )
