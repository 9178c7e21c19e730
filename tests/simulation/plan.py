"""What happens in a history, drawn from its seed: sizes, settings, tasks, requests and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fencepost.core.ids import partition_of
from fencepost.core.limits import Limit
from fencepost.core.links import When
from fencepost.core.schedule import Every
from fencepost.core.task import Definition, OnHandover, OnInterruption, Overlap, PythonHandler, Retry
from fencepost.settings import Settings

NAMESPACE = "sim"
THEMES = (
    "calm", "mixed", "mixed", "mixed", "frozen", "cut", "kills", "handover", "evicted", "late", "late",
    "coordinators", "drift", "deletions", "unheard",
)  # fmt: skip
#: Tasks that run after others. Drawn for itself, so that all other seeds stay what they were.
DEPENDENTS = "dependents"
_DEPENDENTS_SHARE = 0.1
#: Tasks that are forgotten when they were idle for a moment. Drawn for itself too.
FORGETTING = "forgetting"
_FORGETTING_SHARE = 0.05
#: Tasks that run on every worker. Drawn for itself too.
BROADCASTS = "broadcasts"
_BROADCASTS_SHARE = 0.05
#: Tasks that share a limit. Drawn for itself too.
LIMITS = "limits"
_LIMITS_SHARE = 0.05
#: Tasks that move between the namespace and a pool. Drawn for itself too.
POOLS = "pools"
_POOLS_SHARE = 0.05
POOL = "gpu"
_ALL_THERE_S = 3.0  # by then the first owners have taken all definitions
ALL_THEMES = frozenset({*THEMES, DEPENDENTS, FORGETTING, LIMITS, POOLS, BROADCASTS})
#: Requests that a fault may wait for; the empty text: any but heartbeats.
KINDS = (
    "", "", "", "EndTxn", "EndTxn", "TxnOffsetCommit", "TxnOffsetCommit", "Produce", "AddPartitionsToTxn",
    "AddOffsetsToTxn", "InitProducerId", "OffsetFetch", "ListOffsets",
)  # fmt: skip
_LONG = ("cut", "frozen")
PHASES = ("sent", "arrived", "answered")
_ACTIONS: dict[str, tuple[str, ...]] = {
    "calm": (),
    "mixed": (
        "kill", "kill_all", "kill_guard", "pause", "pause_guarded", "freeze", "cut", "cut_out", "cut_in", "evict",
        "stop", "join", "shuffle", "group_away", "coordinator_away", "slow_markers", "hold", "reset", "lose_answer",
        "compact", "wall_clock", "restart_twin", "late_end",
    ),
    "frozen": ("pause", "pause", "pause_guarded", "freeze", "evict", "kill"),
    "cut": ("cut", "cut_out", "cut_in", "lose_answer", "evict", "hold"),
    "kills": ("kill", "kill_all", "kill_guard", "compact", "join"),
    "handover": ("stop", "join", "shuffle", "shuffle", "kill", "pause", "evict", "cut"),
    "evicted": ("evict", "evict", "pause", "hold", "shuffle", "cut_in", "reset"),
    "late": (
        "late_end", "late_end", "hold", "reset", "lose_answer", "evict", "shuffle", "slow_markers", "kill", "kill_all",
    ),
    # Thrown out in the midst of an acquisition, in which the lane does not poll: its client knows, and it does not.
    "unheard": ("kill", "kill", "evict_asking", "evict_asking", "evict_asking", "shuffle"),
    "deletions": ("kill", "shuffle", "evict", "compact", "join"),
    "coordinators": ("group_away", "coordinator_away", "slow_markers", "kill", "hold", "evict", "compact"),
    "drift": ("pause", "cut", "evict", "kill", "pause_guarded"),
    # Whatever was forgotten has to begin above its last epoch, wherever its partition is by then.
    "forgetting": (
        "kill", "kill", "kill_all", "shuffle", "shuffle", "evict", "compact", "compact", "join", "late_end", "hold",
        "lose_answer", "reset", "pause",
    ),
    # The key's owner, and those who hold and wait, die and are thrown out apart from each other.
    "limits": (
        "kill", "kill", "kill_all", "kill_guard", "pause", "pause_guarded", "evict", "evict", "shuffle", "join",
        "late_end", "lose_answer", "hold", "reset", "cut", "slow_markers", "compact",
    ),
    # Whoever has a task, or is to get it, dies or is thrown out while it moves.
    "pools": (
        "kill", "kill", "kill_all", "kill_guard", "pause", "evict", "evict", "shuffle", "join", "late_end",
        "lose_answer", "hold", "reset", "slow_markers", "slow_markers", "compact",
    ),
    # Between the look at who is there and the start on each of them everything may change hands.
    "broadcasts": (
        "kill", "kill", "kill_all", "kill_guard", "evict", "evict", "shuffle", "shuffle", "join", "join", "stop",
        "pause", "cut", "late_end", "lose_answer", "hold", "slow_markers", "compact",
    ),
    # Between the end of a parent and the start of its child everything may change hands.
    "dependents": (
        "kill", "kill", "kill_all", "kill_guard", "late_end", "lose_answer", "hold", "reset", "evict", "shuffle",
        "join", "slow_markers", "compact",
    ),
}  # fmt: skip
WITH_LENGTH = {
    "pause", "pause_guarded", "freeze", "cut", "cut_out", "cut_in", "group_away", "coordinator_away", "slow_markers",
    "hold", "reset", "lose_answer", "evict_asking",
}  # fmt: skip


@dataclass(slots=True)
class Fault:
    """Strikes at a time (`at_s`), or at the `count`-th request of its kind that the seat's process makes after it."""

    action: str
    seat: int
    at_s: float
    kind: str | None = None
    phase: str = "sent"
    count: int = 0
    length_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody else produces: a trigger, a control record or a definition (True; None: a tombstone deletes it)."""

    at_s: float
    topic: str
    task: str
    body: Any


@dataclass(slots=True)
class Plan:
    """All of it. `rates` and `wall_errors_ms` are one for each seat."""

    seed: int
    theme: str
    settings: Settings
    partitions: int
    seats: int
    static: bool
    rates: tuple[float, ...]
    wall_errors_ms: tuple[int, ...]
    beyond_bound: bool
    definitions: tuple[Definition, ...]
    lengths_s: dict[str, tuple[float, float]]
    failing: float
    published: tuple[str, ...]  # tasks whose definition is a record; all others are declared in code
    requests: tuple[Request, ...]
    faults: tuple[Fault, ...]
    chaos: float
    active_s: float
    pool: str = ""  # workers on every other seat are of this pool


def draw(seed: int, theme: str | None = None) -> Plan:
    """The plan of a seed."""
    random = Random(f"plan {seed}")
    if theme is None:
        theme = random.choice(THEMES)
        if Random(f"dependents {seed}").random() < _DEPENDENTS_SHARE:
            theme = DEPENDENTS
        elif Random(f"forgetting {seed}").random() < _FORGETTING_SHARE:
            theme = FORGETTING
        elif Random(f"limits {seed}").random() < _LIMITS_SHARE:
            theme = LIMITS
        elif Random(f"pools {seed}").random() < _POOLS_SHARE:
            theme = POOLS
        elif Random(f"broadcasts {seed}").random() < _BROADCASTS_SHARE:
            theme = BROADCASTS
    newer = random.random() < 0.5
    rate_error = random.choice((0.001, 0.02, 0.1))
    settings = _settings(random, newer, rate_error)
    seats = random.choice((2, 2, 2, 3))
    partitions = random.choice((1, 1, 2, 2, 3))
    names = _names(random, partitions, random.choice((1, 2, 2, 3)))
    lengths_s = {name: random.choice(((0.01, 0.2), (0.05, 2.0), (1.0, 9.0), (4.0, 14.0))) for name in names}
    if theme in _LONG:  # what outlives a session and a lease
        lengths_s = {name: random.choice(((1.0, 9.0), (4.0, 14.0))) for name in names}
        renewal_s = settings.lease_ttl_s / random.choice((2, 3, 6))
        settings = replace(settings, session_timeout_s=random.choice((1.0, 2.0, 3.0)), renewal_s=renewal_s)
    if theme == "unheard":
        lengths_s = dict.fromkeys(names, (0.01, 0.1))
        settings = replace(settings, slots=4)
    if theme == DEPENDENTS:
        names = _names(random, partitions, random.choice((2, 3, 4)))
        lengths_s = {name: random.choice(((0.01, 0.2), (0.05, 2.0))) for name in names}
    if theme == BROADCASTS:
        partitions, seats = random.choice((2, 3, 4)), random.choice((2, 3))
        names = _names(random, partitions, random.choice((1, 2)))
        lengths_s = {name: random.choice(((0.01, 0.2), (0.05, 2.0), (1.0, 5.0))) for name in names}
    if theme == FORGETTING:
        lengths_s = {name: random.choice(((0.01, 0.2), (0.05, 1.0))) for name in names}
        settings = replace(settings, forget_after_s=random.choice((0.2, 1.0)))
    if theme == LIMITS:
        partitions = random.choice((2, 3, 3))
        names = _names(random, partitions, random.choice((3, 4, 5)))
        lengths_s = {name: random.choice(((0.05, 0.5), (0.5, 3.0))) for name in names}
        settings = replace(settings, slots=4)
    if theme == POOLS:
        seats = random.choice((3, 4))
        names = _names(random, partitions, random.choice((2, 3, 4)))
        lengths_s = {name: random.choice(((0.01, 0.2), (0.05, 2.0))) for name in names}
    definitions = tuple(_definition(random, name) for name in names)
    if theme == FORGETTING:
        definitions = tuple(replace(each, schedule=None) for each in definitions)
    if theme == DEPENDENTS:
        definitions = _dependents(random, definitions)
    if theme == POOLS:
        definitions = tuple(replace(each, schedule=None) for each in definitions)
        if random.random() < 0.5:
            definitions = _dependents(random, definitions)
        definitions = tuple(replace(each, pool=random.choice((None, POOL))) for each in definitions)
    if theme == LIMITS:
        limit = Limit("db", max_runs=random.choice((1, 1, 2)), rate=random.choice((None, None, None, "5/s")))
        definitions = tuple(replace(each, schedule=None, limit=limit) for each in definitions)
    if theme == BROADCASTS:
        definitions = tuple(_broadcast(random, each) for each in definitions)
    active_s = random.uniform(8.0, 16.0)
    beyond = theme == "drift"
    published = tuple(name for name in names if random.random() < (0.8 if theme == "deletions" else 0.2))
    if theme in (FORGETTING, LIMITS):
        published = ()
    if theme == POOLS:
        published = names
    if theme in (
        DEPENDENTS,
        BROADCASTS,
    ):  # a deletion breaks off cycles, and what then must come about is a matter of microseconds
        published = ()
    plan = Plan(
        seed=seed,
        theme=theme,
        settings=settings,
        partitions=partitions,
        seats=seats,
        static=random.random() < 0.2,
        rates=tuple(_rate(random, rate_error, beyond) for _ in range(seats + 4)),
        wall_errors_ms=tuple(random.choice((0, 0, 300, -400, 5_000, -7_000)) for _ in range(seats + 4)),
        beyond_bound=beyond,
        definitions=definitions,
        lengths_s=lengths_s,
        failing=random.choice((0.0, 0.0, 0.2)),
        published=published,
        requests=_requests(random, theme, names, active_s, published),
        faults=_faults(random, theme, seats, active_s),
        chaos=random.choice((0.0, 0.0, 0.0, 0.003, 0.02)) if theme not in ("calm",) else 0.0,
        active_s=active_s,
    )
    return _with_moves(random, plan) if theme == POOLS else plan


def _with_moves(random: Random, plan: Plan) -> Plan:
    """Everything happens once all are there; and definitions change where their tasks belong."""
    later_s = plan.active_s + _ALL_THERE_S
    first = [Request(0.05, "tasks", each.task, each) for each in plan.definitions]
    asked = [replace(each, at_s=each.at_s + _ALL_THERE_S) for each in plan.requests if each.topic != "tasks"]
    moves = []
    for _ in range(random.choice((1, 2, 4, 8))):
        moved = replace(random.choice(plan.definitions), pool=random.choice((None, POOL)))
        moves.append(Request(random.uniform(_ALL_THERE_S, later_s), "tasks", moved.task, moved))
    faults = [replace(each, at_s=each.at_s + _ALL_THERE_S) for each in plan.faults]
    return replace(plan, requests=(*first, *asked, *moves), faults=tuple(faults), active_s=later_s, pool=POOL)


def _settings(random: Random, newer: bool, rate_error: float) -> Settings:
    ttl_s = random.choice((3.0, 4.0, 6.0))
    return Settings(
        namespace=NAMESPACE,
        group_protocol="consumer" if newer else "classic",
        session_timeout_s=random.choice((1.0, 2.0, 3.0, 6.0)),
        lease_ttl_s=ttl_s,
        renewal_s=ttl_s / 6,
        margin_s=0.4,
        transaction_timeout_s=random.choice((10.0, 10.0, 300.0)),
        handover_limit_s=random.choice((0.5, 4.0, 15.0)),
        rate_error=rate_error,
        slots=random.choice((1, 4, 4)),
        stop_limit_s=random.choice((0.5, 5.0)),
    )


def _rate(random: Random, rate_error: float, beyond: bool) -> float:
    """Of a clock: at the ends of what is allowed as often as in the middle. Beyond the bound: far beyond."""
    error = rate_error if not beyond else 0.6
    return random.choice((1.0, 1.0 - error, 1.0 + error, 1.0 + random.uniform(-error, error)))


def _names(random: Random, partitions: int, count: int) -> tuple[str, ...]:
    """IDs; the first partitions get theirs first, so that none is without tasks as far as there are enough."""
    wanted = [number % partitions for number in range(count)]
    if random.random() < 0.5:
        wanted = [random.randrange(partitions) for _ in range(count)]
    names: list[str] = []
    number = random.randrange(1000)
    for partition in wanted:
        while partition_of(f"t-{number}".encode(), partitions) != partition:
            number += 1
        names.append(f"t-{number}")
        number += 1
    return tuple(names)


def _definition(random: Random, name: str) -> Definition:
    every_s = random.choice((None, None, 1.5, 3.0, 5.0))
    return Definition(
        name,
        PythonHandler("work"),
        schedule=Every(every_s) if every_s is not None else None,
        retry=Retry(attempts=random.choice((1, 3)), delay_s=0.3, factor=1.5, max_delay_s=1.0),
        timeout_s=random.choice((None, None, 3.0)),
        overlap=random.choice(
            (Overlap.BUFFER_ALL, Overlap.BUFFER_ONE, Overlap.SKIP, Overlap.CANCEL, Overlap.TERMINATE)
        ),
        on_interruption=random.choice((OnInterruption.RETRY, OnInterruption.RETRY, OnInterruption.SKIP)),
        on_handover=random.choice((OnHandover.FINISH, OnHandover.FINISH, OnHandover.STOP)),
        grace_s=random.choice((0.0, 0.5)),
        max_losses=10,
        settle_s=random.choice((0.0, 0.0, 0.3)),
        catch_up_s=random.choice((2.0, 3600.0)),
    )


def _dependents(random: Random, definitions: tuple[Definition, ...]) -> tuple[Definition, ...]:
    """The first is the root; each of the others runs after one or two of those before it. Some are run by shards."""
    first, *others = definitions
    out = [replace(first, overlap=Overlap.BUFFER_ALL)]
    for definition in others:
        known = [each.task for each in out]
        parents = random.sample(known, min(len(known), random.choice((1, 2))))
        out.append(
            replace(
                definition,
                schedule=None,
                overlap=random.choice((Overlap.BUFFER_ALL, Overlap.BUFFER_ALL, Overlap.CANCEL)),
                after=tuple(parents),
                when=random.choice((When.ALL_SUCCEEDED, When.ALL_SUCCEEDED, When.ANY, When.ALL_DONE)),
                propagate_failure=random.random() < 0.8,
            )
        )
    return tuple([replace(each, shards=random.choice((1, 2, 3))) if random.random() < 0.3 else each for each in out])


def _broadcast(random: Random, definition: Definition) -> Definition:
    schedule = Every(random.choice((3.0, 5.0))) if definition.schedule is not None else None
    overlap = random.choice((Overlap.BUFFER_ALL, Overlap.BUFFER_ONE, Overlap.SKIP))
    return replace(definition, broadcast=True, schedule=schedule, overlap=overlap)


def _requests(
    random: Random, theme: str, names: tuple[str, ...], active_s: float, published: tuple[str, ...]
) -> tuple[Request, ...]:
    out = [Request(0.05, "tasks", name, True) for name in published]
    for name in published:
        if random.random() < 0.6:
            at_s = random.uniform(2.0, active_s)
            out.append(Request(at_s, "tasks", name, None))
            out.append(Request(random.uniform(at_s, active_s), "tasks", name, True))
    for number in range(_triggers(random, theme)):
        name = random.choice(names)
        body = {"id": f"{name}#{number}", "payload": number}
        if random.random() < 0.15:
            body["delay"] = random.choice((0.5, 3.0))
        out.append(Request(random.uniform(0.2, active_s), "triggers", name, body))
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        name, at_s = random.choice(names), random.uniform(2.0, active_s)
        if random.random() < 0.5:
            out.append(Request(at_s, "control", name, {"op": "cancel"}))
        else:
            out.append(Request(at_s, "control", name, {"op": "pause"}))
            out.append(Request(min(active_s, at_s + random.uniform(0.1, 5.0)), "control", name, {"op": "resume"}))
    return tuple(out)


def _triggers(random: Random, theme: str) -> int:
    if theme in (FORGETTING, LIMITS, POOLS):
        return random.randint(6, 16)
    return 60 if theme == "unheard" else random.randint(2, 9)


def _faults(random: Random, theme: str, seats: int, active_s: float) -> tuple[Fault, ...]:
    actions = _ACTIONS[theme]
    if not actions:
        return ()
    out = []
    for _ in range(random.choice((1, 2, 3, 4, 6))):
        action = random.choice(actions)
        fault = Fault(action, random.randrange(seats), random.uniform(1.0, active_s * 0.9))
        if action in ("hold", "reset", "lose_answer") or random.random() < 0.5:
            fault.kind = random.choice(KINDS)
            fault.phase = random.choice(PHASES)
            fault.count = random.randint(1, 30 if fault.kind == "" else 6)
        if action == "evict_asking":
            fault.kind, fault.phase, fault.count = "ListOffsets", "sent", random.randint(1, 3)
        if action == "late_end":
            fault.kind, fault.phase, fault.count = "EndTxn", "sent", random.randint(1, 8)
        if action in WITH_LENGTH:
            fault.length_s = random.choice((0.05, 0.3, 1.0, random.uniform(0.5, 4.0), random.uniform(3.0, 10.0)))
            if theme in _LONG:
                fault.length_s = random.choice((fault.length_s, random.uniform(2.0, 6.0), random.uniform(4.0, 10.0)))
        out.append(fault)
    return tuple(out)
