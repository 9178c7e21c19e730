"""Rules without a broker: conditions, templates, files, and what a record triggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import App, AppError, SourceRecord, Trigger
from fencepost.cli.replay import replay_of, rule_of, triggers_of
from fencepost.codec import BadRecord, dumps, loads
from fencepost.core.ids import partition_of
from fencepost.kafka.topics import Topics
from fencepost.views.condition import parse_conditions
from fencepost.views.firing import MOST_IN_FLIGHT, MOST_LETTER_BYTES, Firing
from fencepost.views.record import parse_path
from fencepost.views.rule import MOST_HOPS, MOST_TRIGGERS, Rule
from fencepost.views.rulefile import BadRule, check_names, read_rule_files
from fencepost.views.ruling import check_sources
from fencepost.views.template import parse_template, parse_tree
from fencepost.wire.dead_letter import decode_dead_letter
from fencepost.wire.trigger import read_trigger

ORDER = {
    "id": "o-7",
    "kind": "created",
    "total": 120.5,
    "paid": True,
    "n": 1,
    "lines": [{"sku": "a"}, {"sku": "b"}],
    "none": None,
}


def record(value: Any = ORDER, **fields: Any) -> SourceRecord:
    given = {"raw_key": b"o-7", "raw_headers": (("region", b"eu"), ("trace.id", b"t1")), "timestamp": 1_000}
    return SourceRecord("orders", 2, 41, raw_value=dumps(value), **{**given, **fields})


def from_file(folder: Path, text: str) -> list[Rule]:
    (folder / "rules.toml").write_text(text)
    return read_rule_files([folder / "rules.toml"])


# --- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "holds"),
    [
        ({}, True),
        ({"value.kind": "created"}, True),
        ({"value.kind": "created", "value.total": {"below": 100}}, False),
        ({"value.total": {"at_least": 120.5, "at_most": 120.5}}, True),
        ({"value.total": {"above": 120.5}}, False),
        ({"value.total": {"above": "1"}}, False),  # a number and a text have no order
        ({"value.paid": True}, True),
        ({"value.paid": 1}, False),
        ({"value.n": 1.0}, True),
        ({"value.n": True}, False),
        ({"value.lines": [{"sku": "a"}, {"sku": "b"}]}, True),
        ({"value.lines.1.sku": "b"}, True),
        ({"value.lines.2.sku": "b"}, False),
        ({"value.missing": {"not_equals": 1}}, False),
        ({"value.missing": {"exists": False}}, True),
        ({"value.none": {"exists": True}}, True),
        ({"headers.region": {"in": ["eu", "us"]}}, True),
        ({"headers.region": {"not_in": ["eu", "us"]}}, False),
        ({"headers.trace.id": {"starts_with": "t", "ends_with": "1"}}, True),
        ({"key": {"contains": "-"}}, True),
        ({"value.lines": {"contains": {"sku": "b"}}}, True),
        ({"topic": "orders", "partition": 2, "offset": {"above": 40}, "timestamp": 1_000}, True),
    ],
)
def test_a_condition_holds_or_not(table: dict[str, Any], holds: bool) -> None:
    assert all(condition.holds(record()) for condition in parse_conditions(table)) is holds


def test_values_are_compared_as_deep_as_a_record_may_be_nested() -> None:
    """Anybody may write such a record: the work is as much as it is long, not twice as much for each level."""

    def nested(core: object) -> object:
        for level in range(100):
            core = [core] if level % 2 else {"a": core}
        return core

    (condition,) = parse_conditions({"value": nested(1)})
    for core, holds in ((1, True), (1.0, True), (2, False), (True, False)):
        made = SourceRecord("orders", 2, 41, b"k", dumps(nested(core)))
        assert condition.holds(made) is holds


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"body.kind": 1}, "allowed: key, value"),
        ({"value.total": {"more": 1}}, "allowed: equals"),
        ({"value.total": {}}, "no condition"),
        ({"value.total": {"in": 3}}, "takes a list"),
        ({"value.total": {"exists": 1}}, "takes true or false"),
        ({"key.x": 1}, "has no fields"),
        ({"value..x": 1}, "empty field name"),
        ({"headers": 1}, "names no header"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_with_what_is_allowed(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_conditions(table)


# --- templates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("invoice/{value.id}", "invoice/o-7"),
        ("{value.total}", 120.5),
        ("{value.lines}", ORDER["lines"]),
        ("{value.none}", None),
        ("{value}", ORDER),
        ("{ value.n }/{value.paid}", "1/true"),
        ("{{{value.id}}}", "{o-7}"),
        ("{key}-{headers.trace.id}-{topic}-{partition}-{offset}-{timestamp}", "o-7-t1-orders-2-41-1000"),
    ],
)
def test_a_template_is_filled(text: str, value: Any) -> None:
    assert parse_template(text).value(record(), "payload") == value


@pytest.mark.parametrize("text", ["{value.lines}/x", "x{value.none}", "{value}!"])
def test_what_has_no_text_cannot_stand_within_one(text: str) -> None:
    with pytest.raises(BadRecord, match="cannot stand within a text"):
        parse_template(text).value(record(), "payload")


@pytest.mark.parametrize(
    "text",
    ["{value.__class__}", "{value.id.__len__}", "{value.id.upper}", "{value.lines.append}", "{value.lines.-1}"],
)
def test_attributes_are_never_looked_at(text: str) -> None:
    with pytest.raises(BadRecord, match="the record has no"):
        parse_template(text).value(record(), "payload")


@pytest.mark.parametrize(
    "text", ["{", "}", "{value.a", "{__import__('os')}", "{0}", "{}", "{value!r}x{key:>10}", "{x[0]}"]
)
def test_a_placeholder_that_names_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|write"):
        parse_template(text)


def test_a_payload_keeps_its_form_and_its_kinds() -> None:
    tree = parse_tree({"order": "{value.id}", "all": ["{value.total}", 3, True], "deep": {"kind": "x-{value.kind}"}})
    assert tree.value(record(), "payload") == {
        "order": "o-7",
        "all": [120.5, 3, True],
        "deep": {"kind": "x-created"},
    }  # fmt: skip


def test_a_missing_field_is_named_with_its_place_in_the_payload() -> None:
    with pytest.raises(BadRecord) as refusal:
        parse_tree({"a": {"b": "{value.nope}"}}).value(record(), "payload")
    assert str(refusal.value) == "payload.a.b: the record has no value.nope"


# --- rules -----------------------------------------------------------------------------------------------------------

FILE = """
[[rule]]
name = "big-order"
topic = "orders"
match = { "value.kind" = "created", "value.total" = { at_least = 100 } }
task = "invoice/{value.id}"
payload = { total = "{value.total}" }
delay = "10s"
priority = 2
headers = { region = "{headers.region}" }
"""


def test_a_rule_of_a_file_makes_a_trigger(tmp_path: Path) -> None:
    (rule,) = from_file(tmp_path, FILE)
    (made,) = rule.apply(record())
    trigger = read_trigger(made.task.encode(), made.value, None, 5, 6)
    assert (made.task, made.id) == ("invoice/o-7", "big-order:orders:2:41:1000")
    assert (trigger.id, trigger.payload, trigger.delay_ms) == (made.id, {"total": 120.5}, 10_000)
    assert (trigger.priority, trigger.headers) == (2, {"region": "eu"})
    assert rule.apply(record({**ORDER, "total": 99})) == []
    assert rule.apply(record(None)) == []


def test_the_same_record_has_the_same_id_and_any_other_record_another(tmp_path: Path) -> None:
    (rule,) = from_file(tmp_path, FILE)
    first, again = rule.apply(record()), rule.apply(record())
    assert first == again
    assert rule.apply(record(timestamp=2_000))[0].id != first[0].id  # the topic was made again
    function = Rule("f" * 100, "o" * 200, lambda _record: ["a", "b"])
    ids = [made.id for made in function.apply(record())]
    assert len(set(ids)) == 2
    long = Rule("f", "o", lambda _record: ["a", "b"])
    far = SourceRecord("t" * 249, 1, 2, None, None, (), 3)
    assert all(len(made.id) <= 255 for made in long.apply(far))
    assert len({made.id for made in long.apply(far)}) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rules]]\nname = 'a'", "allowed: \\[\\[rule\\]\\] tables"),
        ("[rule]\nname = 'a'", "allowed: \\[\\[rule\\]\\] tables"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'", "task is None"),
        ("[[rule]]\nname = 'a b'\ntopic = 'o'\ntask = 't'", "a rule's name"),
        ("[[rule]]\nname = 'a'\ntopic = 'o o'\ntask = 't'", "topic is 'o o'"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\nwhen = 1", "unknown key 'when'; allowed: name"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = '{x}'", "task: 'x' names no part"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = ''", "task: a task ID has at least one character"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\ndelay = 'soon'", "delay:"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\nrun_at = 'soon'", "run_at:"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\nrun_at = '{value.at}'\ndelay = 1", "exclude each other"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\npriority = 10", "from 0 to 9"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\nmatch = 3", "match: is 3; allowed: a table"),
        ("[[rule]]\nname = 'a'\ntopic = 'o'\ntask = 't'\nheaders = {x = 3}", "headers: x is 3"),
        ("[[rule]", "not valid TOML"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadRule, match=words) as refusal:
        from_file(tmp_path, text)
    assert "rules.toml" in str(refusal.value)


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRule, match="'big-order' is there twice"):
        check_names(from_file(tmp_path, FILE + FILE))


def test_functions_of_an_app_are_rules() -> None:
    app = App("shop")

    @app.rule("orders")
    def big(order: SourceRecord) -> Any:
        if order.value["total"] > 100:
            yield Trigger(f"invoice/{order.key}", payload={"of": order.headers["region"]}, delay="1m")
            yield "audit"

    with pytest.raises(AppError, match="declared twice"):
        app.rule("others", name="big")(lambda _record: None)
    with pytest.raises(AppError, match="name"):
        app.rule("others", name="not good")(lambda _record: None)
    (rule,) = app.rules()
    made = rule.apply(record())
    assert [(each.task, each.id) for each in made] == [
        ("invoice/o-7", "big:orders:2:41:1000"),
        ("audit", "big:orders:2:41:1000:1"),
    ]
    assert loads(made[0].value) == {"id": made[0].id, "payload": {"of": "eu"}, "delay": 60.0}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _record: 1 / 0, "raised ZeroDivisionError"),
        (lambda _record: [3], "yielded a int"),
        (lambda _record: ["x"] * (MOST_TRIGGERS + 1), f"more than {MOST_TRIGGERS}"),
        (lambda _record: iter(lambda: "x", None), f"more than {MOST_TRIGGERS}"),  # without an end
        (lambda _record: "bad\n", "control character"),
        (lambda _record: Trigger("t", delay="soon"), "delay"),
        (lambda _record: Trigger("t", delay=1, run_at="2030-01-01T00:00:00Z"), "exclude each other"),
        (lambda _record: Trigger("t", payload={1, 2}), "not JSON"),
        (lambda _record: Trigger("t", payload="x" * 300_000), "payload"),
        (lambda found: found.value["nope"], "KeyError"),
    ],
)
def test_whatever_goes_wrong_in_a_rule_is_a_bad_record(function: Any, words: str) -> None:
    with pytest.raises(BadRecord, match=words):
        Rule("r", "orders", function).apply(record())


# --- what goes out ---------------------------------------------------------------------------------------------------


def firing(*rules: Rule) -> Firing:
    return Firing(rules, Topics("ns"), 16, "/fencepost/ns/rules")


def test_triggers_lie_where_their_owner_looks_and_say_who_sent_them() -> None:
    sending = firing(Rule("r", "orders", lambda _record: "invoice/o-7"))
    (batch,) = sending.batches([record()])
    (out,) = sending.outgoing(batch)
    assert (out.topic, out.key, out.partition) == ("ns.triggers", "invoice/o-7", partition_of(b"invoice/o-7", 16))
    assert out.headers["ce_id"] == "r:orders:2:41:1000"
    assert out.headers["ce_source"] == "/fencepost/ns/rules"
    assert batch.offsets() == {("orders", 2): 42}


def test_a_bad_record_becomes_a_dead_letter_with_its_bytes_and_holds_up_nothing(tmp_path: Path) -> None:
    (declared,) = from_file(tmp_path, FILE)
    sending = firing(declared, Rule("all", "orders", lambda _record: "t/1"))
    broken = SourceRecord("orders", 2, 42, b"\xff", b"{no", ())
    (batch,) = sending.batches([broken, record()])
    outgoing = sending.outgoing(batch)
    assert [out.topic for out in outgoing] == ["ns.triggers"] * 3 + ["ns.dead-letter"]
    letter = decode_dead_letter(outgoing[-1].value or b"")
    assert (letter.topic, letter.partition, letter.offset) == ("orders", 2, 42)
    assert (letter.key, letter.value) == (b"\xff", b"{no")
    assert letter.reason.startswith("rule big-order: not JSON")
    assert letter.field == "value"


def test_a_letter_that_would_be_too_large_says_what_is_missing(tmp_path: Path) -> None:
    (declared,) = from_file(tmp_path, FILE)
    sending = firing(declared)
    huge = SourceRecord("orders", 0, 0, None, b"\xfe" * (MOST_LETTER_BYTES + 5), ())
    (letter,) = sending.outgoing(next(sending.batches([huge])))
    assert len(letter.value or b"") < 4 * 1024 * 1024
    assert "of 2,097,157 bytes the first 2,097,152 are kept" in decode_dead_letter(letter.value or b"").reason


def test_a_batch_is_small_enough_that_every_task_still_knows_what_is_sent_twice() -> None:
    sending = firing(Rule("r", "orders", lambda _record: ["t"] * 40))
    records = [SourceRecord("orders", 0, number, None, b"{}", ()) for number in range(7)]
    batches = list(sending.batches(records))
    assert [len(batch.fired) for batch in batches] == [2, 2, 2, 1]
    assert all(batch.weight <= MOST_IN_FLIGHT < 100 for batch in batches)


def test_paths_are_told_apart() -> None:
    assert parse_path("headers.a.b").steps == ("a.b",)
    assert parse_path("value.a.b").steps == ("a", "b")
    assert parse_path("value").steps == ()


# --- rules on the namespace's own runs -------------------------------------------------------------------------------


def of_run(**fields: Any) -> SourceRecord:
    return SourceRecord("ns.runs", 0, 7, b"t", dumps({"kind": "succeeded", "task": "t", **fields}), (), 1_000)


@pytest.mark.parametrize("told_by", ["trigger", "cycle"])
def test_runs_that_trigger_runs_are_counted_in_the_ids_and_come_to_an_end(told_by: str) -> None:
    """Each run's record triggers the next: by its own trigger, or by the cycle that a task after it takes on."""
    sending = firing(Rule("round", "ns.runs", lambda _record: "t"))
    fields: dict[str, Any] = {}
    for hop in range(1, MOST_HOPS + 1):
        fired = sending.fire(of_run(**fields))
        (trigger,) = fired.triggers
        assert trigger.id == f"round:ns.runs:0:7:1000;hop={hop}"
        fields = {told_by: trigger.id if told_by == "trigger" else f"run:first/{trigger.id}"}
    fired = sending.fire(of_run(**fields))
    assert fired.triggers == ()
    ((name, bad),) = fired.bad
    assert name == "round"
    assert bad.reason.startswith(f"rule round goes round in circles: {MOST_HOPS} runs in a row")


def test_a_replay_and_an_id_that_is_too_long_keep_the_count_and_what_does_not_trigger_is_no_circle() -> None:
    sending = firing(Rule("r" * 100, "ns.runs", lambda record: "t" if record.value.get("again") else None))
    assert sending.fire(of_run(trigger=f"x;hop={MOST_HOPS}")).bad == ()
    (trigger,) = sending.fire(of_run(trigger="x;hop=3~1", again=True)).triggers
    assert trigger.id.endswith(";hop=4")
    elsewhere = firing(Rule("r", "orders", lambda _record: "t"))
    (trigger,) = elsewhere.fire(record({"trigger": f"x;hop={MOST_HOPS}"})).triggers
    assert trigger.id == "r:orders:2:41:1000"


def test_a_rule_on_all_runs_is_refused_and_one_that_says_which_is_not(tmp_path: Path) -> None:
    text = "[[rule]]\nname = 'a'\ntopic = 'ns.runs'\ntask = 't'\n"
    with pytest.raises(BadRule, match=r"match is missing: each run that it triggers makes records in ns\.runs"):
        check_sources(from_file(tmp_path, text), Topics("ns"))
    check_sources(from_file(tmp_path, text + 'match = { "value.kind" = "succeeded" }'), Topics("ns"))


# --- dead letters of rules -------------------------------------------------------------------------------------------


def test_a_letter_of_a_rule_is_replayed_by_the_rule_as_it_is_now_and_nothing_goes_to_its_topic(tmp_path: Path) -> None:
    (broken,) = from_file(tmp_path, FILE.replace("{value.id}", "{value.number}"))
    sending = firing(broken)
    (batch,) = sending.batches([record()])
    (out,) = sending.outgoing(batch)
    letter = decode_dead_letter(out.value or b"")
    topics = Topics("ns")
    assert rule_of(letter, topics) == "big-order"
    with pytest.raises(ValueError, match=r"rule big-order could not use a record of orders, .* --rules FILE or --app"):
        replay_of(letter, "0:0", topics, 16)
    with pytest.raises(ValueError, match="no rule big-order on orders is among those given"):
        triggers_of(letter, "big-order", [], topics, 16)
    with pytest.raises(ValueError, match=r"rule big-order still cannot use it: .*number"):
        triggers_of(letter, "big-order", [broken], topics, 16)
    mended = from_file(tmp_path, FILE)
    (again,) = triggers_of(letter, "big-order", mended, topics, 16)
    (batch,) = firing(*mended).batches([record()])
    (first,) = firing(*mended).outgoing(batch)
    assert again == first  # with the ID of the first time: a replay too many triggers nothing
