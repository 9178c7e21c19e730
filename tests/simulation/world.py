"""One history's world: broker, network and processes, what others produce, and the faults that strike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from random import Random

from fencepost.codec import dumps
from fencepost.core.ids import partition_of
from fencepost.core.task import Definition
from fencepost.kafka.topics import Topics
from fencepost.settings import Settings
from fencepost.wire.definition import encode_definition
from fencepost.worker.identity import Identity
from tests.simulation.broker import Broker
from tests.simulation.clocks import MachineClock
from tests.simulation.facts import Facts
from tests.simulation.faults import Faults
from tests.simulation.kernel import SECOND_US, Kernel
from tests.simulation.network import Network
from tests.simulation.plan import Fault, Plan, Request
from tests.simulation.process import Process
from tests.simulation.runners import SimRunners

BEAT_TTL_S = 45.0
MOST_PROCESSES = 12


class World:
    """Made from a plan; `make_runners` may be another where a safeguard is off."""

    def __init__(self, plan: Plan, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.kernel = Kernel()
        self.random = Random(f"world {plan.seed}")
        self.product_random = Random(f"product {plan.seed}")
        self.settings: Settings = plan.settings
        self.partitions = plan.partitions
        self.definitions = {definition.task: definition for definition in plan.definitions}
        self.declared = [item for item in plan.definitions if item.task not in plan.published]
        self._trace = trace
        self.tracing = trace is not None
        self.facts = Facts(self.kernel, drift_beyond_bound=plan.beyond_bound)
        newer = plan.settings.group_protocol == "consumer"
        self.broker = Broker(self.kernel, self.random, plan.partitions, newer, self.say)
        self.faults = Faults(self, self.random, plan.chaos)
        self.network = Network(self.kernel, self.random, self.faults)
        self.processes: list[Process] = []
        self._announced: dict[str, list[str]] = {}
        self._ending = False
        self._clocks = [self._clock(seat) for seat in range(len(plan.rates))]

    def make_runners(self, process: Process, settings: Settings) -> SimRunners:
        beat_ttl_s = max(settings.lease_ttl_s, BEAT_TTL_S)
        return SimRunners(process, settings.slots, settings.margin_s, beat_ttl_s)

    def settings_of(self, seat: int) -> Settings:
        """Every other seat is one of the pool, where there is one."""
        if not self.plan.pool or seat % 2 == 0 or seat >= self.plan.seats:
            return self.settings
        return replace(self.settings, namespace=Topics(self.settings.namespace).of(self.plan.pool).namespace)

    @property
    def namespaces(self) -> list[str]:
        """The namespace, and its pool if there is one."""
        return sorted({self.settings_of(seat).namespace for seat in range(self.plan.seats)})

    def _clock(self, seat: int) -> MachineClock:
        boot_at_s = self.random.uniform(100.0, 1e6)
        return MachineClock(self.kernel, self.plan.rates[seat], boot_at_s, self.plan.wall_errors_ms[seat])

    # -- the course of it --

    def set_up(self) -> None:
        """Everything that will happen is put on the heap."""
        for seat in range(self.plan.seats):
            self._at(self.random.uniform(0.0, 0.5), lambda seat=seat: self.start(seat))  # type: ignore[misc]
        for request in self.plan.requests:
            self._at(request.at_s, lambda request=request: self._request(request))  # type: ignore[misc]
        for fault in self.plan.faults:
            fault = copy.copy(fault)
            self._at(fault.at_s, lambda fault=fault: self._due(fault))  # type: ignore[misc]
        self._at(self.plan.active_s, self._calm_down)

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self.kernel.at(int(at_s * SECOND_US), action)

    def start(self, seat: int) -> None:
        """A process takes the seat, unless one has it."""
        if any(process.seat == seat and not process.dead for process in self.processes):
            return
        if len(self.processes) < MOST_PROCESSES:
            self._start(seat)

    def _start(self, seat: int) -> None:
        incarnation = f"i{len(self.processes)}"
        worker = f"w{seat}" if self.plan.static else f"w{seat}-{incarnation}"
        process = Process(self, seat, Identity(worker, incarnation, self.plan.static), self._clocks[seat])
        self.processes.append(process)
        process.start()

    def process_ended(self, process: Process) -> None:
        """A supervisor starts it again after a while."""
        if self._ending or process.seat >= self.plan.seats:
            return
        if any(other.seat == process.seat and not other.dead for other in self.processes):
            return
        delay_s = self.random.choice((0.1, 1.0, self.random.uniform(0.5, 8.0)))
        self.kernel.after(int(delay_s * SECOND_US), lambda: self.start(process.seat))

    def _calm_down(self) -> None:
        """No more faults; what was cut off, paused or away comes back."""
        self.say("the faults are over")
        self.faults.end()
        now_us = self.kernel.now_us
        self.broker.slow_markers_until_us = self.broker.coordinator_down_until_us = 0
        self.broker.group_down_until_us = 0
        for process in list(self.processes):
            process.cut_in_until_us = min(process.cut_in_until_us, now_us)
            process.cut_out_until_us = min(process.cut_out_until_us, now_us)
            process.resume()
        for seat in range(self.plan.seats):
            self.start(seat)

    def end(self) -> None:
        """Everything stops where it is."""
        self._ending = True
        self.tracing = False
        for process in self.processes:
            if not process.dead:
                process.kill("the history is over")

    # -- what others produce --

    def _request(self, request: Request) -> None:
        key = request.task.encode()
        place = (f"{self.settings.namespace}.{request.topic}", partition_of(key, self.partitions))
        self.say(f"produced: {request.topic} {request.task} {request.body}")
        body: bytes | None = None
        if isinstance(request.body, Definition):
            body = encode_definition(request.body)
        elif request.topic == "tasks" and request.body:
            body = encode_definition(self.definitions[request.task])
        elif request.body is not None:
            body = dumps(request.body)
        self.broker.write(place, key, body)
        if request.topic == "triggers":
            self.facts.triggers.append((request.task, request.body["id"]))

    def plan_of_run(self, task: str) -> tuple[int, bool]:
        """How long a run of the task takes (microseconds by its machine's clock), and whether it fails then."""
        shortest_s, longest_s = self.plan.lengths_s[task.partition("/shard/")[0].partition("/on/")[0]]
        failing = self.plan.failing
        if self.faults.over:  # what waits is to be done soon
            shortest_s, longest_s, failing = 0.01, 0.2, 0.0
        return int(self.random.uniform(shortest_s, longest_s) * SECOND_US), self.random.random() < failing

    # -- what the worker's roster knows --

    def announced(self, identity: Identity) -> None:
        self._announced.setdefault(identity.worker, []).append(identity.incarnation)

    def newer_than(self, identity: Identity) -> bool:
        known = self._announced.get(identity.worker, [])
        return bool(known) and known[-1] != identity.incarnation

    # -- faults --

    def _due(self, fault: Fault) -> None:
        if fault.kind is not None:
            self.faults.arm(fault)
            return
        living = [process for process in self.processes if process.seat == fault.seat and not process.dead]
        if living:
            self.strike(fault, living[-1])

    def strike(self, fault: Fault, process: Process) -> None:
        if self.faults.over:
            return
        length_us = int(fault.length_s * SECOND_US)
        until_us = self.kernel.now_us + length_us
        self.say(f"FAULT {fault.action} {process.name} {fault.length_s:.2f} s")
        action = fault.action
        if action in ("pause", "pause_guarded", "freeze"):
            process.pause(guard=action != "pause", runs=action == "freeze")
            self.kernel.after(length_us, process.resume)
        elif action in ("cut", "cut_out", "cut_in"):
            if action != "cut_in":
                process.cut_out_until_us = max(process.cut_out_until_us, until_us)
            if action != "cut_out":
                process.cut_in_until_us = max(process.cut_in_until_us, until_us)
        else:
            self._strike_once(action, process, until_us)

    def _strike_once(self, action: str, process: Process, until_us: int) -> None:
        group = self.broker.group_of(process.namespace)
        if action == "kill":
            process.kill("a fault")
        elif action == "kill_all":
            process.kill_all()
        elif action == "kill_guard":
            process.runners.guard_dies()
        elif action == "stop":
            if not process.dead and not process.paused:
                process.stop()
        elif action == "evict":
            if group.members:
                group.evict(self.random.choice(sorted(group.members)))
        elif action == "join":
            self.start(self.plan.seats + self.random.randrange(2))
        elif action == "restart_twin":
            self._start(process.seat)
        elif action == "shuffle":
            group.shuffled = True
            self.start(self.plan.seats)
        elif action == "group_away":
            self.broker.group_down_until_us = until_us
            for each in list(self.broker.groups.values()):
                self.kernel.at(until_us, each.sessions_begin_again)
        elif action == "coordinator_away":
            self.broker.coordinator_down_until_us = until_us
        elif action == "slow_markers":
            self.broker.slow_markers_until_us = until_us
        elif action == "compact":
            for place in sorted(self.broker.logs):
                if place[0].endswith((".state", ".owners", ".tasks")):
                    self.broker.logs[place].compact()
        elif action == "wall_clock":
            process.clock.wall_error_ms += self.random.choice((-20_000, -1_500, 1_500, 30_000))
        else:
            raise ValueError(f"no such fault: {action}")

    def crashed(self, process: Process, failure: BaseException) -> None:
        self.facts.crashes.append(f"{process.name}: {failure!r}")
        if self.tracing:
            import traceback

            self.say("".join(traceback.format_exception(failure)))

    def say(self, text: str) -> None:
        if self._trace is not None and self.tracing:
            self._trace(f"{self.kernel.now_us / SECOND_US:10.6f} {text}")
