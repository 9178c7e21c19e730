"""Rules: what a record of a topic has triggered. Declarative ones come from files, others are functions of an app."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.codec import BadRecord, NotEncodable
from fencepost.core.ids import check_task_id
from fencepost.core.times import parse_duration, parse_rfc3339
from fencepost.views.condition import Condition
from fencepost.views.record import SourceRecord
from fencepost.views.template import Template, Tree
from fencepost.wire.trigger import ID_BYTES, encode_trigger

MOST_TRIGGERS: Final = 50  # of one record and rule: a task remembers the last 100 IDs, and a batch must fit
MOST_HOPS: Final = 20  # runs in a row that were triggered by runs
_HOP = re.compile(r";hop=([0-9]{1,4})(?:~[0-9]+)?$")  # a replay from the dead letters marks the ID as well
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a rule's function yields: a request to run `task`.

    delay: seconds, or "10s". run_at: RFC 3339 with offset.
    """

    task: str
    payload: Any = None
    delay: str | float | None = None
    run_at: str | None = None
    priority: int | None = None
    headers: Mapping[str, str] | None = None


RuleFunction = Callable[[SourceRecord], Iterable[Trigger | str] | Trigger | str | None]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a rule in a file says: conditions that all hold, and templates."""

    task: Template
    match: tuple[Condition, ...] = ()
    payload: Tree | None = None
    delay: Template | None = None
    run_at: Template | None = None
    priority: int | None = None
    headers: Mapping[str, Template] = field(default_factory=dict)

    def __call__(self, record: SourceRecord) -> list[Trigger]:
        if not all(condition.holds(record) for condition in self.match):
            return []
        return [
            Trigger(
                task=self.task.text(record, "task"),
                payload=None if self.payload is None else self.payload.value(record, "payload"),
                delay=None if self.delay is None else self.delay.value(record, "delay"),
                run_at=None if self.run_at is None else self.run_at.text(record, "run_at"),
                priority=self.priority,
                headers={name: item.text(record, f"headers.{name}") for name, item in self.headers.items()} or None,
            )
        ]


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` goes into the deduplication IDs: a renamed rule is another one."""

    name: str
    topic: str
    function: RuleFunction

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a rule's name is {self.name[:100]!r}; allowed: 1 to 100 letters, digits, '.', '_' or '-'"
            )

    @property
    def kind(self) -> str:
        """How it is told: in a file, or by a function."""
        return "declared" if isinstance(self.function, Declared) else "function"

    def apply(self, record: SourceRecord, runs: str | None = None) -> list[Encoded]:
        """What the record triggers by this rule, in order. Raises BadRecord, whatever went wrong in it.

        runs: the topic of the namespace's own history. What a rule triggers makes records there, which may trigger
        again: the IDs count how often that went on, and it ends.
        """
        try:
            found = _listed(self.function(record))
        except BadRecord:
            raise
        except Exception as error:
            raise BadRecord(f"rule {self.name} raised {type(error).__name__}: {error}"[:900]) from error
        if len(found) > MOST_TRIGGERS:
            raise BadRecord(f"rule {self.name} made more than {MOST_TRIGGERS} triggers of one record")
        hop = 1 + _hops(record) if found and record.topic == runs else 0
        if hop > MOST_HOPS:
            raise BadRecord(
                f"rule {self.name} goes round in circles: {MOST_HOPS} runs in a row were triggered by runs through "
                "rules; have it match only what its own triggers do not make"
            )
        return [_encoded(trigger, self._id(record, number, hop)) for number, trigger in enumerate(found)]

    def _id(self, record: SourceRecord, number: int, hop: int) -> str:
        """The same for the same record, however often it is read. The time tells a topic that was made again."""
        place = f"{self.name}:{record.topic}:{record.partition}:{record.offset}:{record.timestamp}"
        whole, mark = f"{place}:{number}" if number else place, f";hop={hop}" if hop else ""
        if len(whole.encode()) + len(mark) <= ID_BYTES:
            return whole + mark
        return f"{self.name}:{hashlib.sha256(whole.encode()).hexdigest()}{mark}"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A trigger ready to be sent."""

    task: str
    id: str
    value: bytes


def _hops(record: SourceRecord) -> int:
    """How often in a row rules made a run of a run, up to the one that this record of the history tells of.

    The trigger's ID says it, also of runs after that one, whose cycle it names.
    """
    told = record.value if isinstance(record.value, dict) else {}
    found = [_HOP.search(told[name]) for name in ("trigger", "cycle") if isinstance(told.get(name), str)]
    return max((int(match[1]) for match in found if match is not None), default=0)


def _listed(made: Iterable[Trigger | str] | Trigger | str | None) -> list[Trigger]:
    if made is None:
        return []
    if isinstance(made, Trigger | str):
        made = [made]
    found: list[Trigger] = []
    for item in made:
        if len(found) > MOST_TRIGGERS:
            break  # one too many is enough to refuse it; a generator may have no end
        found.append(Trigger(item) if isinstance(item, str) else item)
    for trigger in found:
        if not isinstance(trigger, Trigger):
            raise BadRecord(f"a rule yielded a {type(trigger).__name__}; allowed: fencepost.Trigger, or a task ID")
    return found


def _encoded(trigger: Trigger, trigger_id: str) -> Encoded:
    try:
        task = check_task_id(trigger.task)
    except ValueError as error:
        raise BadRecord(str(error), "task") from error
    try:
        value = encode_trigger(
            id=trigger_id,
            payload=trigger.payload,
            delay_s=None if trigger.delay is None else _parsed(parse_duration, trigger.delay, "delay"),
            run_at_ms=None if trigger.run_at is None else _parsed(parse_rfc3339, trigger.run_at, "run_at"),
            priority=trigger.priority,
            headers=None if trigger.headers is None else dict(trigger.headers),
        )
    except NotEncodable as error:
        raise BadRecord(str(error), "payload") from error
    return Encoded(task, trigger_id, value)


def _parsed(parse: Callable[[Any], Any], value: Any, name: str) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError) as error:
        raise BadRecord(str(error), name) from error
