from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.codec import BadRecord
from fencepost.core.limits import Limit
from fencepost.core.schedule import Cron, Every, Once
from fencepost.core.task import (
    CommandHandler,
    Definition,
    HttpHandler,
    Isolation,
    OnHandover,
    OnInterruption,
    Overlap,
    PythonHandler,
    Redirects,
    Retry,
    default_overlap,
)
from fencepost.wire.definition import definition_from_json, definition_to_json, encode_definition, read_definition

HANDLER = {"kind": "python", "function": "report"}
HTTP = {"kind": "http", "url": "https://api.example.com:8443/orders?x=1"}


def refusal(body: dict[str, Any]) -> BadRecord:
    with pytest.raises(BadRecord) as raised:
        definition_from_json("report", body)
    return raised.value


def test_the_least_definition_is_a_handler() -> None:
    task, definition = read_definition(b"report", json.dumps({"handler": HANDLER}).encode())
    assert task == "report"
    assert definition == Definition("report", PythonHandler("report"))


def test_every_field_is_read() -> None:
    body = {
        "v": 1,
        "task": "report",
        "handler": {"kind": "command", "argv": ["/bin/echo", "hi"], "env": {"B": "2", "A": "1"}, "cwd": "/tmp"},
        "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
        "retry": {"attempts": 5, "delay_s": "1m", "factor": 3, "max_delay_s": 600, "jitter": 0},
        "timeout_s": "2h",
        "overlap": "cancel",
        "buffer_limit": 7,
        "on_interruption": "resume",
        "on_handover": "stop",
        "isolation": "own",
        "lease_ttl_s": 60,
        "grace_s": 1.5,
        "settle_s": 2,
        "max_losses": 0,
        "catch_up_s": 0,
        "priority": 9,
        "payload": {"a": [1]},
        "strict_stop": True,
        "paused": True,
        "description": "text",
    }
    definition = definition_from_json("report", body)
    assert definition == Definition(
        task="report",
        handler=CommandHandler(("/bin/echo", "hi"), (("A", "1"), ("B", "2")), "/tmp"),
        schedule=Cron("0 2 * * *", time_zone="Europe/Berlin"),
        retry=Retry(5, 60.0, 3.0, 600.0, 0.0),
        timeout_s=7200.0,
        overlap=Overlap.CANCEL,
        buffer_limit=7,
        on_interruption=OnInterruption.RESUME,
        on_handover=OnHandover.STOP,
        isolation=Isolation.OWN,
        lease_ttl_s=60.0,
        grace_s=1.5,
        settle_s=2.0,
        max_losses=0,
        catch_up_s=0.0,
        priority=9,
        payload={"a": [1]},
        strict_stop=True,
        paused=True,
        description="text",
    )
    assert read_definition(b"report", encode_definition(definition)) == ("report", definition)


def test_a_limit_comes_out_as_it_went_in() -> None:
    for limit in (Limit("db", 3), Limit("api", rate="5/10m", burst=2), Limit("both", 1, "1/s")):
        definition = Definition("a", PythonHandler("f"), limit=limit)
        assert read_definition(b"a", encode_definition(definition)) == ("a", definition)


def test_every_field_of_an_http_request_is_read() -> None:
    assert definition_from_json("a", {"handler": HTTP}).handler == HttpHandler(HTTP["url"])
    body = {
        **HTTP,
        "method": "DELETE",
        "headers": {"X-B": "2", "X-A": "1"},
        "body": "payload",
        "success": [204, "404-410"],
        "retry_statuses": [],
        "timeout_s": "1m",
        "redirects": "allowed_hosts",
    }
    handler = HttpHandler(
        HTTP["url"],
        "DELETE",
        (("X-A", "1"), ("X-B", "2")),
        True,
        ((204, 204), (404, 410)),
        (),
        60.0,
        Redirects.ALLOWED_HOSTS,
    )
    assert definition_from_json("a", {"handler": body}).handler == handler
    get = definition_from_json("a", {"handler": {**HTTP, "method": "GET"}}).handler
    assert isinstance(get, HttpHandler)
    assert not get.sends_payload


def test_the_overlap_policy_follows_the_schedule_where_nothing_is_said() -> None:
    assert definition_from_json("a", {"handler": HANDLER}).overlap is Overlap.BUFFER_ALL
    assert definition_from_json("a", {"handler": HANDLER, "schedule": {"every_s": 60}}).overlap is Overlap.BUFFER_ONE


def test_i03_a_tombstone_deletes() -> None:
    assert read_definition(b"report", None) == ("report", None)


def test_a_definition_needs_a_key() -> None:
    with pytest.raises(BadRecord, match="key is the task ID"):
        read_definition(None, json.dumps({"task": "report", "handler": HANDLER}).encode())
    with pytest.raises(BadRecord, match="is not the record's key"):
        read_definition(b"other", json.dumps({"task": "report", "handler": HANDLER}).encode())
    with pytest.raises(BadRecord, match="at least one character"):
        read_definition(b"", None)


@pytest.mark.parametrize("value", [b"", b"null", b"{}", b"[]", b'{"handler":{"kind":"python","kind":"python"}}'])
def test_what_is_no_definition_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        read_definition(b"report", value)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"handler": None}, "handler", "allowed: an object"),
        ({"handler": {}}, "handler.kind", "is missing"),
        (
            {"handler": {"kind": "shell"}},
            "handler.kind",
            '"shell" is not allowed; allowed: "python", "command", "http"',
        ),
        ({"handler": {"kind": "python"}}, "handler.function", "is missing"),
        (
            {"handler": {"kind": "python", "function": "a", "argv": []}},
            "handler.argv",
            "unknown field; allowed: kind, function",
        ),
        ({"handler": {"kind": "command"}}, "handler.argv", "is missing"),
        ({"handler": {"kind": "command", "argv": []}}, "handler.argv", "1 item"),
        ({"handler": {"kind": "command", "argv": ["a", 1]}}, "handler.argv[1]", "1 is not allowed; allowed: a string"),
        ({"handler": {"kind": "command", "argv": ["a\0"]}}, "handler.argv[0]", "match"),
        ({"handler": {"kind": "command", "argv": ["a"], "env": {"A": 1}}}, "handler.env.A", "allowed: a string"),
        ({"handler": {"kind": "http"}}, "handler.url", "is missing"),
        ({"handler": {"kind": "http", "url": "ftp://a/b"}}, "handler.url", "allowed: http:// or https://"),
        ({"handler": {"kind": "http", "url": "http://user@a/b"}}, "handler.url", "without user"),
        ({"handler": {"kind": "http", "url": "http://a\\b/"}}, "handler.url", "backslashes"),
        ({"handler": {"kind": "http", "url": "http://a/#b"}}, "handler.url", "fragment"),
        ({"handler": {"kind": "http", "url": "http://a:70000/"}}, "handler.url", "allowed: http:// or https://"),
        ({"handler": {**HTTP, "method": "post"}}, "handler.method", 'allowed: "GET", "HEAD", "POST"'),
        ({"handler": {**HTTP, "argv": []}}, "handler.argv", "unknown field; allowed: kind, url, method"),
        ({"handler": {**HTTP, "headers": {"Host": "b"}}}, "handler.headers.Host", "leave it out"),
        ({"handler": {**HTTP, "headers": {"fencepost-epoch": "9"}}}, "handler.headers.fencepost-epoch", "leave it out"),
        ({"handler": {**HTTP, "headers": {"A": "1", "a": "2"}}}, "handler.headers.a", "given twice"),
        ({"handler": {**HTTP, "headers": {"A": "1\r\nB: 2"}}}, "handler.headers.A", "match"),
        ({"handler": {**HTTP, "success": [99]}}, "handler.success[0]", "100 to 599"),
        ({"handler": {**HTTP, "success": ["2xx"]}}, "handler.success[0]", 'or a range such as "200-299"'),
        ({"handler": {**HTTP, "retry_statuses": ["299-200"]}}, "handler.retry_statuses", "low end first"),
        ({"handler": {**HTTP, "timeout_s": 0}}, "handler.timeout_s", "no time"),
        ({"handler": {**HTTP, "redirects": "all"}}, "handler.redirects", '"same_host", "allowed_hosts", "none"'),
        ({"handler": {**HTTP, "method": "GET", "body": "payload"}}, "handler.body", "a GET has no body"),
        ({"limit": {"key": "db"}}, "limit", "give max_runs, rate or both"),
        ({"limit": {"key": "db", "rate": "ten/s"}}, "limit.rate", 'such as "10/s"'),
        ({"limit": {"key": "db", "max_runs": 0}}, "limit.max_runs", "1 to 1000000"),
        ({"limit": {"key": "db", "max_runs": 1, "burst": 2}}, "limit.burst", "is for a rate"),
        ({"limit": {"max_runs": 1}}, "limit.key", "is missing"),
        ({"pool": "GPU"}, "pool", "1 to 63 small letters, digits, _ or -"),
        ({"arrival": {"number": 1}}, "arrival.epoch", "is missing"),
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron.minute", ""),
        ({"schedule": {"cron": "0 2 * * *", "time_zone": "Mars/Olympus"}}, "schedule.time_zone", ""),
        ({"schedule": {}}, "schedule", "none of cron, every_s, at"),
        ({"schedule": {"cron": "* * * * *", "every_s": 5}}, "schedule", "given together"),
        ({"schedule": {"every_s": -1}}, "schedule.every_s", ""),
        ({"schedule": {"every": 5}}, "schedule.every", "unknown field; allowed: cron, time_zone, every_s, anchor, at"),
        ({"schedule": "daily"}, "schedule", "allowed: an object"),
        ({"retry": {"attempts": 0}}, "retry.attempts", "0 is out of range; allowed: 1 to 1000000"),
        ({"retry": {"tries": 3}}, "retry.tries", "allowed: attempts, delay_s, factor, max_delay_s, jitter"),
        ({"retry": {"delay_s": "long"}}, "retry.delay_s", "not a duration"),
        ({"retry": {"jitter": 1.1}}, "retry.jitter", "0 to 1"),
        ({"retry": 3}, "retry", "allowed: an object"),
        ({"overlap": "queue"}, "overlap", '"skip", "buffer_one", "buffer_all", "cancel", "terminate"'),
        ({"timeout_s": 0}, "timeout_s", "leave the field out"),
        ({"timeout_s": -5}, "timeout_s", "out of range"),
        ({"lease_ttl_s": "10ms"}, "lease_ttl_s", "at least 1 s"),
        ({"priority": 10}, "priority", "0 to 9"),
        ({"buffer_limit": 10**9}, "buffer_limit", "1 to 10000"),
        ({"strict_stop": "yes"}, "strict_stop", "a boolean"),
        ({"payload": "x" * 262_144}, "payload", "at most 262,144"),
        ({"v": 2}, "v", "unknown version 2"),
        ({"colour": "red"}, "colour", "unknown field; allowed: v, task, handler"),
        ({"task": "other"}, "task", "'other' is not the record's key, 'report'"),
        ({"task": 7}, "task", "a string"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_a_wrong_field_is_named_with_what_is_allowed(change: dict[str, Any], field: str, says: str) -> None:
    error = refusal({"handler": HANDLER, **change})
    assert error.field == field
    assert says in error.reason


durations = st.integers(2, 100_000).map(float)
definitions = st.builds(
    Definition,
    task=st.just("report"),
    handler=st.builds(PythonHandler, st.text("abc", min_size=1))
    | st.builds(
        CommandHandler, st.tuples(st.text("xyz/ ", min_size=1)), st.just((("A", "1"),)), st.none() | st.just("/")
    )
    | st.builds(
        HttpHandler,
        st.sampled_from(["http://a", "https://[::1]:8080/x?y=z"]),
        st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
        st.just((("A", "1"),)),
        st.booleans(),
        st.just(((200, 204), (404, 404))),
        st.sampled_from([(), ((500, 599),)]),
        durations,
        st.sampled_from(Redirects),
    ),
    schedule=st.sampled_from(
        [None, Cron("*/5 * * * *"), Every(60), Every(1.5, 1_700_000_000_000), Once(1_700_000_000_123)]
    ),
    retry=st.builds(Retry, st.integers(1, 9), durations, st.floats(0, 10), durations, st.floats(0, 1)),
    timeout_s=st.none() | durations,
    overlap=st.sampled_from(Overlap),
    buffer_limit=st.integers(1, 10_000),
    on_interruption=st.sampled_from(OnInterruption),
    on_handover=st.sampled_from(OnHandover),
    isolation=st.sampled_from(Isolation),
    lease_ttl_s=st.none() | durations,
    grace_s=durations,
    settle_s=durations,
    max_losses=st.integers(0, 10),
    catch_up_s=durations,
    priority=st.integers(0, 9),
    payload=st.none() | st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
    strict_stop=st.booleans(),
    paused=st.booleans(),
    description=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)


@given(definitions)
def test_a_definition_goes_through_its_record_unharmed(definition: Definition) -> None:
    assert read_definition(b"report", encode_definition(definition)) == ("report", definition)
    assert definition_from_json("report", definition_to_json(definition)) == definition


def test_what_is_at_its_default_is_left_out() -> None:
    schedule = Every(60)
    definition = Definition("a", PythonHandler("f"), schedule, overlap=default_overlap(schedule))
    assert json.loads(encode_definition(definition)) == {
        "v": 1,
        "task": "a",
        "handler": {"kind": "python", "function": "f"},
        "schedule": {"every_s": 60},
    }


def test_the_id_chooses_what_the_schedule_leaves_open_and_the_record_stays_as_it_is() -> None:
    value = b'{"handler": {"kind": "python", "function": "f"}, "schedule": {"cron": "H H * * *"}}'
    one, other = (read_definition(task, value)[1] for task in (b"invoice/1", b"invoice/2"))
    assert one is not None
    assert other is not None
    assert one.schedule == Cron("H H * * *", task="invoice/1")
    assert other.schedule == Cron("H H * * *", task="invoice/2")
    assert b'"H H * * *"' in encode_definition(one)
    assert read_definition(b"invoice/1", encode_definition(one)) == ("invoice/1", one)
    rare = value.replace(b"H H * * *", b"0 0 0 H 2 */7 2026")
    assert read_definition(b"3", rare)[1] is not None
    with pytest.raises(BadRecord, match="never fires") as refusal:
        read_definition(b"0", rare)
    assert refusal.value.field == "schedule.cron"


def test_equal_schedules_are_one_object() -> None:
    value = json.dumps({"handler": HANDLER, "schedule": {"cron": "1 2 3 4 *"}}).encode()
    first, second = read_definition(b"a", value)[1], read_definition(b"b", value)[1]
    assert first is not None
    assert second is not None
    assert first.schedule is second.schedule


@pytest.mark.parametrize("key", ["ü" * 125, "a\u0085b"], ids=ascii)
def test_a_limits_key_that_could_have_no_owner_is_refused(key: str) -> None:
    """Its asks would become dead letters, and its tasks wait for ever."""
    error = refusal({"handler": HANDLER, "limit": {"key": key, "max_runs": 1}})
    assert error.field == "limit.key"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"map": "list"}, "map"),
        ({"map": "list", "after": ["other"]}, "map"),
        ({"shard_of": "other"}, "shard_of"),
        ({"shard_of": "a/shard/0"}, "shard_of"),
    ],
    ids=["map of nothing", "map of another", "a shard by another name", "a shard of itself"],
)
def test_a_map_names_what_there_is_and_a_shard_is_named_after_its_task(more: dict[str, Any], field: str) -> None:
    body = {"handler": {"kind": "python", "function": "f"}, **more}
    with pytest.raises(BadRecord) as raised:
        read_definition(b"a/shard/0", json.dumps(body).encode())
    assert raised.value.field == field


@pytest.mark.parametrize("more", [{"map": "payload"}, {"map": "list", "after": ["list"]}, {"shard_of": "a"}], ids=str)
def test_what_is_so_named_is_read(more: dict[str, Any]) -> None:
    body = {"handler": {"kind": "python", "function": "f"}, **more}
    read_definition(b"a/shard/0", json.dumps(body).encode())
