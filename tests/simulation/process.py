"""One worker process: its fibers, its clock, its guard; how it is started, paused and killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.core.lease import Lease
from fencepost.kafka.errors import KafkaProblem
from fencepost.kafka.topics import Topics
from fencepost.kafka.transaction import transactional_ids
from fencepost.settings import Settings
from fencepost.worker import worker as product
from fencepost.worker.context import LaneContext
from fencepost.worker.declared import Declared
from fencepost.worker.guard.client import GuardLost
from fencepost.worker.identity import Identity
from fencepost.worker.lane import Lane
from fencepost.worker.meters import NoMeters
from tests.simulation.clocks import LaneClock, MachineClock
from tests.simulation.kernel import Event, Fiber
from tests.simulation.runners import SimRunners

if TYPE_CHECKING:
    from tests.simulation.world import World


class Notes:
    """The lane's log: goes to the trace, and is kept nowhere else."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def debug(self, event: str, **fields: Any) -> None:
        self._say(event, fields)

    info = warning = error = debug

    def _say(self, event: str, fields: dict[str, Any]) -> None:
        if self._process.world.tracing:
            more = " ".join(f"{name}={value}" for name, value in fields.items())
            self._process.say(f"lane: {event} {more}")


class Process:
    """`seat` tells processes that follow each other (a supervisor starts one again) from those that live together."""

    def __init__(self, world: World, seat: int, identity: Identity, clock: MachineClock) -> None:
        self.world = world
        self.seat = seat
        self.identity = identity
        self.name = f"{identity.worker}/{identity.incarnation}"
        self.clock = clock
        self.fibers: dict[Fiber, None] = {}
        self.dead = False
        self.paused = False
        self.frozen = False  # its runs, too
        self.cut_out_until_us = 0
        self.cut_in_until_us = 0
        self.kick: Callable[[], None] = lambda: None
        self.member_news: Callable[[], bool] = lambda: False
        self.member_name: Callable[[], str] = lambda: ""
        self._deferred: list[Callable[[], None]] = []
        settings = world.settings_of(seat)
        self.namespace = settings.namespace
        self.runners = world.make_runners(self, settings)
        self.runners.on_reports(lambda: self.kick())
        self.context = self._context(settings)
        self.lane: Lane | None = None
        self._worker: Any = product.Worker.__new__(product.Worker)
        self._worker._settings = settings
        self._worker._stop = product.Stop()
        self._worker._failures = []

    def _context(self, settings: Settings) -> LaneContext:
        lane = self.identity.lane_id(0)
        topics = Topics(settings.namespace)
        return LaneContext(
            settings=settings,
            topics=topics,
            partition_count=self.world.partitions,
            handover_limit_s=settings.handover_limit(settings.group_protocol),
            identity=self.identity,
            ordinal=0,
            lane=lane,
            ring=transactional_ids(settings.namespace, self.identity.worker, 0),
            runners=self.runners,
            declared=Declared(self.world.declared if topics.pool is None else [], ["work"]),
            clock=LaneClock(self.clock),
            lease=Lease(settings.lease_ttl_s, settings.renewal_s),
            meters=NoMeters(),
            log=Notes(self),
            topic_ids=dict.fromkeys(topics.guarded, "the-first"),
        )

    # -- life --

    def start(self) -> None:
        self.say("starts")
        self.spawn(self._run, self._ended)

    def spawn(self, work: Callable[[], Any], on_end: Callable[[Any, BaseException | None], None]) -> None:
        fiber = Fiber(self, work, on_end)
        self.fibers[fiber] = None
        fiber.start()

    def _run(self) -> None:
        """As the real worker's thread of a lane does."""
        self.lane = Lane(
            self.context, self.world.settings.group_protocol, lambda _output: None, self._newer_incarnation
        )
        self.world.announced(self.identity)
        self._worker._run_lane(self.lane, self.context)

    def _newer_incarnation(self) -> bool:
        return self.world.newer_than(self.identity)

    def _ended(self, _value: None, failure: BaseException | None) -> None:
        failures = ([failure] if failure is not None else []) + self._worker._failures
        for each in failures:
            if isinstance(each, KafkaProblem | GuardLost):
                self.world.facts.ends[f"{type(each).__name__}: {each}"] = 1
                self.say(f"ends: {type(each).__name__}: {each}")
            else:
                self.world.crashed(self, each)
        self.runners.end_all()
        self._die("exits" if not failures else "exits with 1")

    def stop(self) -> None:
        """SIGTERM."""
        self.say("is told to stop")
        self._worker._stop.signals += 1
        self.kick()

    def kill(self, why: str) -> None:
        """SIGKILL of the worker; its guard sees that and ends the runs."""
        if not self.dead:
            self._die(f"is killed ({why})")
            self.runners.worker_died()

    def kill_all(self) -> None:
        """SIGKILL of worker and guard at once; the runs follow."""
        if not self.dead:
            self._die("is killed with its guard")
            self.runners.guard_dies()

    def _die(self, why: str) -> None:
        self.say(why)
        self.dead = True
        for fiber in list(self.fibers):
            fiber.die()
        self.fibers.clear()
        self._deferred.clear()
        self.world.process_ended(self)

    # -- pauses --

    def pause(self, *, guard: bool, runs: bool) -> None:
        if not self.dead and not self.paused:
            self.say(f"is paused{' with its guard' if guard else ''}{' and runs' if runs else ''}")
            self.paused = True
            self.frozen = runs
            if guard:
                self.runners.pause_guard()

    def resume(self) -> None:
        self.frozen = False
        self.runners.resume_guard()
        if self.dead or not self.paused:
            return
        self.say("goes on")
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            self.world.kernel.after(0, lambda action=action: self.when_running(action))  # type: ignore[misc]
        for fiber in list(self.fibers):
            self.world.kernel.after(self.world.random.randint(0, 300), fiber.let_go_on)

    def when_running(self, action: Callable[[], None]) -> None:
        """In a thread of the process: now, when it goes on, or never."""
        if self.dead:
            return
        if self.paused:
            self._deferred.append(action)
        else:
            action()

    def after_local_us(self, delay_us: int, action: Callable[[], None]) -> Event:
        return self.world.kernel.after(delay_us, lambda: self.when_running(action))

    # -- network --

    def unreachable_until_us(self) -> int | None:
        """None: reachable both ways."""
        until_us = max(self.cut_out_until_us, self.cut_in_until_us)
        return until_us if until_us > self.world.kernel.now_us else None

    def has_news(self) -> bool:
        """Whether the lane should not wait for a record now."""
        return self.member_news() or self.runners.has_reports

    def say(self, text: str) -> None:
        if self.world.tracing:
            self.world.say(f"{self.name}: {text}")


class Beating:
    """Stands for the thread that beats while Kafka is waited for."""

    def __init__(self, runners: list[SimRunners]) -> None:
        self._runners = runners

    def __enter__(self) -> None:
        for each in self._runners:
            each.beaten_for = True

    def __exit__(self, *_error: object) -> None:
        for each in self._runners:
            each.beaten_for = False
            each.beat()
