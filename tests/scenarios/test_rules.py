"""Rules on streams, on a real broker, with real workers that run what is triggered."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.codec import dumps, loads
from fencepost.core.ids import partition_of
from fencepost.kafka.scan import scan
from fencepost.views.intake import Intake
from fencepost.views.record import SourceRecord
from tests.kafka.lane.harness import Notes, wait_until
from tests.scenarios.stage import Stage, produce
from tests.scenarios.views_process import started

SOURCES = 2  # partitions
RULE = """
[[rule]]
name = "order"
topic = "{topic}"
match = {{ "value.kind" = "created" }}
task = "t/{{value.customer}}"
payload = {{ seconds = 0, order = "{{value.n}}" }}
"""


class Source:
    """A topic of somebody else's, and the rule that reads it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.topic = f"{stage.world.settings.namespace}-orders"
        self.group = f"{stage.world.settings.namespace}-rules"
        admin = AdminClient({"bootstrap.servers": stage.world.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(self.topic, SOURCES, 1)])[self.topic].result(30)
        self.file = stage.folder / "rules.toml"
        self.file.write_text(RULE.format(topic=self.topic))

    def order(self, number: int, customers: int = 20, kind: str = "created") -> tuple[bytes, bytes]:
        return str(number).encode(), dumps({"kind": kind, "customer": f"c{number % customers}", "n": number})

    def send(self, *numbers: int, **options: object) -> None:
        producer = Producer({"bootstrap.servers": self.stage.world.bootstrap})
        for number in numbers:
            key, value = self.order(number, **options)  # type: ignore[arg-type]
            producer.produce(self.topic, value, key)
        assert producer.flush(30) == 0

    def triggers(self) -> list[str]:
        """The IDs of all triggers, as often as they were sent."""
        return [
            loads(record.value or b"{}")["id"] for record in self.stage.world.records(self.stage.world.topics.triggers)
        ]

    def orders_started(self) -> Counter[str]:
        """By trigger ID: how often it was started."""
        started: Counter[str] = Counter()
        for record in self.stage.world.records(self.stage.world.topics.runs):
            event = loads(record.value or b"{}")
            if event["kind"] == "started":
                started[event["trigger"]] += 1
        return started

    def left(self) -> int:
        """Records the group has not committed."""
        consumer = Consumer({"bootstrap.servers": self.stage.world.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            places = [TopicPartition(self.topic, number) for number in range(SOURCES)]
            left = 0
            for place in consumer.committed(places, timeout=20):
                end = consumer.get_watermark_offsets(TopicPartition(self.topic, place.partition), timeout=20)[1]
                left += end - max(place.offset, 0)
            return left
        finally:
            consumer.close()

    def wait_read(self) -> None:
        wait_until("all records are committed", lambda: self.left() == 0, 60.0)


@pytest.fixture
def source(stage: Stage) -> Source:
    return Source(stage)


def test_each_source_record_triggers_once_though_the_rules_are_killed_between_sending_and_committing(
    stage: Stage, source: Source
) -> None:
    stage.start_all("a")
    source.send(*range(300))
    begin = ("rules", str(source.file), "--from", "beginning")
    for number in range(2):
        with started(stage, f"bent{number}", *begin, module="tests.scenarios.bent_rules") as bent:
            assert bent.wait_end() == -signal.SIGKILL
    with started(stage, "killed", *begin) as killed:
        killed.wait_ready()
        killed.stop(signal.SIGKILL)
    with started(stage, "rules", *begin) as rules:
        source.wait_read()
        stage.wait("every order ran", lambda: len(source.orders_started()) == 300, 90.0)
        assert rules.stop() == 0
    sent = Counter(source.triggers())
    assert len(sent) == 300
    assert max(sent.values()) > 1, "nothing was sent twice, so nothing was shown"
    assert set(source.orders_started().values()) == {1}
    skipped = [event for task in range(20) for event in stage.world.history(f"t/c{task}") if event["kind"] == "skipped"]
    assert skipped
    assert {event["cause"] for event in skipped} == {"duplicate"}
    stage.cli("verify")


def test_records_of_aborted_transactions_do_not_trigger_and_gaps_hold_nothing_up(stage: Stage, source: Source) -> None:
    with started(stage, "rules", "rules", str(source.file), "--from", "beginning") as rules:
        rules.wait_ready()
        producer = Producer({"bootstrap.servers": stage.world.bootstrap, "transactional.id": f"{source.topic}-x"})
        producer.init_transactions(30)
        for number in range(20):
            producer.begin_transaction()
            key, value = source.order(number)
            producer.produce(source.topic, value, key)
            producer.flush(30)
            producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
        source.send(100)
        wait_until("11 triggers", lambda: len(source.triggers()) >= 11, 60.0)
        rules.stop()
    found = [loads(record.value or b"{}") for record in stage.world.records(stage.world.topics.triggers)]
    assert sorted(trigger["payload"]["order"] for trigger in found) == [*range(1, 20, 2), 100]
    with started(stage, "again", "rules", str(source.file)) as again:
        again.wait_ready()
        source.send(101)
        wait_until("the next one", lambda: len(source.triggers()) > 11, 60.0)
        again.stop()
    assert len(source.triggers()) == 12, "what was done before the stop was read again"


def test_bad_source_records_are_counted_logged_and_kept_and_stop_nothing(stage: Stage, source: Source) -> None:
    with started(stage, "rules", "rules", str(source.file), "--from", "beginning") as rules:
        rules.wait_ready()
        source.send(1)
        bad = produce(stage.world.bootstrap, source.topic, b"\xfe", b"{no json", partition=0)
        lacking = produce(stage.world.bootstrap, source.topic, b"k", dumps({"kind": "created"}), partition=0)
        produce(stage.world.bootstrap, source.topic, b"k", None, partition=0)  # a tombstone matches nothing
        source.send(2, kind="deleted")
        source.send(3)
        source.wait_read()
        wait_until("it is counted", lambda: b'bad_records_total{rule="order"} 2.0' in rules.page("/metrics")[1])
        said = rules.said("a record could not be used: it is among the dead letters")
        assert {(line["partition"], line["offset"]) for line in said} == {bad, lacking}
        rules.stop()
    assert len(source.triggers()) == 2
    letters = {(letter["partition"], letter["offset"]): letter for letter in stage.dead_letters()}
    assert letters.keys() == {bad, lacking}
    assert letters[bad]["value"] == {"text": "{no json"}
    assert letters[bad]["topic"] == source.topic
    assert letters[lacking]["reason"] == "rule order: the record has no value.customer"
    listed = stage.cli("dlq", "list").stdout
    assert "the record has no value.customer" in listed


def test_a_letter_of_a_rule_is_replayed_by_the_mended_rule_and_its_topic_is_left_alone(
    stage: Stage, source: Source
) -> None:
    with started(stage, "rules", "rules", str(source.file), "--from", "beginning") as rules:
        rules.wait_ready()
        place = produce(stage.world.bootstrap, source.topic, b"k", dumps({"kind": "created", "n": 4}), partition=0)
        source.wait_read()
        rules.stop()
    assert place == (0, 0)
    (letter,) = loads(stage.cli("dlq", "list", "--json").stdout.encode())["dead_letters"]
    refused = stage.cli("dlq", "replay", letter["place"], expect=1)
    assert "rule order could not use a record of" in refused.stderr
    still = stage.cli("dlq", "replay", letter["place"], "--rules", str(source.file), expect=1)
    assert "still cannot use it: task: the record has no value.customer" in still.stderr
    mended = stage.folder / "mended.toml"
    mended.write_text(source.file.read_text().replace("{value.customer}", "{value.n}"))
    for _ in range(2):  # the second time with the same ID, which a task takes once
        stage.cli("dlq", "replay", letter["place"], "--rules", str(mended))
    first, second = source.triggers()
    assert first == second
    assert first.startswith(f"order:{source.topic}:0:0:")


def test_triggers_land_by_murmur2_whoever_partitioned_the_source(stage: Stage, source: Source) -> None:
    with started(stage, "rules", "rules", str(source.file), "--from", "beginning") as rules:
        rules.wait_ready()
        source.send(*range(40), customers=40)
        source.wait_read()
        rules.stop()
    found = stage.world.records(stage.world.topics.triggers)
    assert len(found) == 40
    assert all(record.partition == partition_of(record.key or b"", stage.world.info.partitions) for record in found)


def test_rules_begin_now_unless_told_otherwise_and_a_crash_before_the_first_commit_loses_nothing(
    stage: Stage, source: Source
) -> None:
    source.send(1, 2, 3)
    with started(stage, "first", "rules", str(source.file)) as first:
        first.wait_ready()
        first.stop(signal.SIGKILL)
    source.send(4)  # while nobody reads
    with started(stage, "second", "rules", str(source.file)) as second:
        wait_until("the one sent meanwhile", lambda: source.triggers(), 90.0)
        second.stop()
    (trigger,) = (loads(record.value or b"{}") for record in stage.world.records(stage.world.topics.triggers))
    assert trigger["payload"]["order"] == 4


def test_two_processes_share_the_partitions_and_one_takes_over_from_the_other(stage: Stage, source: Source) -> None:
    begin = ("rules", str(source.file), "--from", "beginning")
    with started(stage, "one", *begin) as one, started(stage, "two", *begin) as two:
        one.wait_ready()
        two.wait_ready()
        source.send(*range(60))
        source.wait_read()
        one.stop(signal.SIGKILL)
        source.send(*range(60, 120))
        source.wait_read()
        two.stop()
    assert len(set(source.triggers())) == 120


def test_a_function_of_an_app_is_a_rule(stage: Stage, source: Source) -> None:
    module = stage.folder / "rule_app.py"
    module.write_text(
        "from fencepost import App, Trigger\n"
        "app = App('rules')\n"
        f"@app.rule({source.topic!r})\n"
        "def twice(record):\n"
        "    if record.value['n'] == 2:\n"
        "        raise RuntimeError('not this one')\n"
        "    yield Trigger(f'a/{record.key}', payload=record.value)\n"
        "    yield f'b/{record.key}'\n"
    )
    with started(stage, "rules", "rules", "--app", "rule_app:app", "--from", "beginning", cwd=stage.folder) as rules:
        rules.wait_ready()
        source.send(1, 2, 3)
        source.wait_read()
        rules.stop()
    tasks = sorted((record.key or b"").decode() for record in stage.world.records(stage.world.topics.triggers))
    assert tasks == ["a/1", "a/3", "b/1", "b/3"]
    (letter,) = stage.dead_letters()
    assert letter["reason"] == "rule twice: rule twice raised RuntimeError: not this one"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("rules",), 2, "no rules"),
        (("rules", "{file}", "--from", "then"), 2, "allowed: now, beginning"),
        (("rules", "nothing.toml"), 2, "cannot read nothing.toml"),
        (("rules", "{own}"), 2, "would go round in circles"),
        (("rules", "{absent}"), 1, "does not exist"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(
    stage: Stage, source: Source, arguments: tuple[str, ...], code: int, words: str
) -> None:
    own, absent = stage.folder / "own.toml", stage.folder / "absent.toml"
    own.write_text(RULE.format(topic=stage.world.topics.triggers))
    absent.write_text(RULE.format(topic="nobody-made-it"))
    places = {"file": source.file, "own": own, "absent": absent}
    done = stage.cli(*(item.format(**places) for item in arguments), expect=code)
    assert words in done.stderr


def test_check_lists_the_rules_and_starts_nothing(stage: Stage, source: Source) -> None:
    done = stage.cli("rules", str(source.file), "--check", "--json")
    assert loads(done.stdout.encode()) == {"rules": [{"name": "order", "topic": source.topic, "kind": "declared"}]}


class _Consumer:
    """Where the group stands, as faust has it."""

    def __init__(self, topic: str, offset: int | None) -> None:
        self._committed_offset = {TopicPartition(topic, 0): offset}


@pytest.mark.parametrize(("committed", "first", "handed_out"), [(2, 5, [2, 3, 4, 5]), (None, 1, [0, 1]), (3, 2, [])])
def test_what_the_library_passes_over_after_a_rebalance_is_read_and_what_is_done_is_left_out(
    stage: Stage, source: Source, committed: int | None, first: int, handed_out: list[int]
) -> None:
    for number in range(6):
        produce(stage.world.bootstrap, source.topic, b"k", str(number).encode(), partition=0)
    given = next(record for record in scan(stage.world.settings, source.topic, [0]) if record.offset == first)
    notes = Notes()

    async def take() -> list[int]:
        intake = Intake(stage.world.settings, source.group, [source.topic], notes)
        intake._app.consumer = _Consumer(source.topic, committed)  # type: ignore[assignment]
        record = SourceRecord(source.topic, 0, given.offset, given.key, given.value, given.headers, given.at_ms)
        found = [each.offset for each in await intake._in_order(record)]
        assert await intake._in_order(record) == []  # a second time
        return found

    assert asyncio.run(take()) == handed_out
    passed_over = [each["count"] for each in notes.of("records were passed over and read again")]
    assert passed_over == ([len(handed_out) - 1] if len(handed_out) > 1 else [])
