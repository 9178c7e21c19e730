"""`init` and the namespace's record, on a real broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from fencepost.kafka.admin import BadRequest, init, load_namespace
from fencepost.kafka.cluster import Admin, Refused
from fencepost.kafka.errors import NotInitialised, Unavailable, WrongNamespace
from fencepost.kafka.namespace import read_namespace
from fencepost.kafka.topics import Topics
from fencepost.settings import PROFILES, Settings

if TYPE_CHECKING:
    from fencepost.broker import Cluster


@pytest.fixture
def settings(kafka: Cluster, namespace: str) -> Settings:
    return Settings(bootstrap=kafka.bootstrap, namespace=namespace, profile="quick", **PROFILES["quick"])


def delete_topic(settings: Settings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.delete_topics([topic], operation_timeout=10)[topic].result()


def test_init_makes_every_topic_as_the_table_says(settings: Settings) -> None:
    report = init(settings, partitions=3)
    admin, topics = Admin(settings), Topics(settings.namespace)
    facts = admin.topics([spec.name for spec in topics.specs()])
    assert {name: fact.partitions for name, fact in facts.items()} == {
        spec.name: 3 if spec.per_task else 1 for spec in topics.specs()
    }
    assert set(report.created) == set(facts)
    for spec in topics.specs():
        config = admin.topic_config(spec.name)
        assert {name: config[name] for name in spec.config} == dict(spec.config), spec.name
    compacted = {spec.name.removeprefix(settings.namespace + ".") for spec in topics.specs() if spec.compacted}
    assert compacted == {"tasks", "state", "owners", "workers"}


def test_init_repeated_changes_nothing_and_says_so(settings: Settings) -> None:
    first = init(settings, partitions=2)
    second = init(settings)
    assert second.created == ()
    assert second.changed == ()
    assert second.info == first.info
    assert load_namespace(settings) == first.info


def test_init_puts_right_what_the_protocol_needs_and_leaves_retention_alone(settings: Settings) -> None:
    init(settings, partitions=1)
    admin, topics = Admin(settings), Topics(settings.namespace)
    admin.set_topic_config(topics.state, {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"})
    admin.set_topic_config(topics.runs, {"retention.ms": "123456"})
    report = init(settings)
    assert len(report.changed) == 2
    assert all(topics.state in line for line in report.changed)
    assert admin.topic_config(topics.state)["cleanup.policy"] == "compact"
    assert admin.topic_config(topics.state)["message.timestamp.type"] == "LogAppendTime"
    assert admin.topic_config(topics.runs)["retention.ms"] == "123456"


def test_another_partition_count_is_refused_with_the_way_to_migrate(settings: Settings) -> None:
    init(settings, partitions=2)
    with pytest.raises(WrongNamespace, match=r"has 2 partitions, but 3 were asked for.*To migrate"):
        init(settings, partitions=3)
    assert load_namespace(settings).partitions == 2


def test_a_topic_that_grew_is_refused_by_those_who_load_the_namespace(settings: Settings) -> None:
    init(settings, partitions=1)
    topics = Topics(settings.namespace)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.create_partitions([NewPartitions(topics.triggers, 2)])[topics.triggers].result()
    with pytest.raises(WrongNamespace, match="triggers has 2"):
        load_namespace(settings)


def test_an_init_that_was_cut_short_is_finished_by_the_next(settings: Settings) -> None:
    admin, topics = Admin(settings), Topics(settings.namespace)
    for spec in topics.specs()[:3]:
        admin.create(spec.name, 4, 1, spec.config)
    with pytest.raises(NotInitialised, match="fencepost init"):
        load_namespace(settings)
    report = init(settings)
    assert report.info.partitions == 4
    assert len(report.created) == len(topics.specs()) - 3


def test_half_made_topics_of_another_count_are_refused(settings: Settings) -> None:
    topics = Topics(settings.namespace)
    Admin(settings).create(topics.owners, 4, 1, topics.specs()[0].config)
    with pytest.raises(WrongNamespace, match="allowed: --partitions 4"):
        init(settings, partitions=2)


@pytest.mark.parametrize("kind", ["state", "owners", "triggers"])
def test_a_lost_topic_is_not_made_again_without_a_word(settings: Settings, kind: str) -> None:
    init(settings, partitions=1)
    name = getattr(Topics(settings.namespace), kind)
    delete_topic(settings, name)
    with pytest.raises(WrongNamespace, match=f"{kind}: missing although the namespace was initialised"):
        init(settings)
    report = init(settings, accept_new_topics=True)
    assert report.created == (name,)
    assert load_namespace(settings) == report.info


def test_a_topic_made_again_under_its_name_is_noticed(settings: Settings) -> None:
    init(settings, partitions=1)
    topics = Topics(settings.namespace)
    delete_topic(settings, topics.state)
    Admin(settings).create(topics.state, 1, 1, {})
    with pytest.raises(WrongNamespace, match="state: deleted and made again"):
        load_namespace(settings)
    with pytest.raises(WrongNamespace, match="accept-new-topics"):
        init(settings)


def test_without_init_loading_says_what_to_run(settings: Settings) -> None:
    with pytest.raises(NotInitialised, match="run `fencepost init`"):
        load_namespace(settings)


def test_without_kafka_loading_names_the_address() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        load_namespace(Settings(bootstrap="127.0.0.1:1"), timeout_s=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partitions": 0}, "--partitions is 0; allowed: 1 to 10000"),
        ({"replication": 0}, "--replication is 0; allowed"),
        ({"replication": 2}, "allowed: 1 to 1, the number of brokers"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_made(
    settings: Settings, arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        init(settings, **arguments)
    assert Admin(settings).topics([spec.name for spec in Topics(settings.namespace).specs()]) == {}


def test_the_newer_protocol_is_chosen_where_the_session_timeout_is_allowed(settings: Settings) -> None:
    report = init(settings, partitions=1)
    assert (report.info.group_protocol, report.info.session_timeout_s) == ("consumer", 3.0)


def test_a_session_timeout_the_broker_refuses_leads_to_the_classic_protocol_and_is_said(settings: Settings) -> None:
    # Beyond group.consumer.max.session.timeout.ms; a stock broker refuses everything below 45 s in the same way.
    long = replace(settings, session_timeout_s=300.0)
    report = init(long, partitions=1)
    assert report.info.group_protocol == "classic"
    assert any("the broker refused consumer.session.timeout.ms=300000" in note for note in report.notes)


def test_a_protocol_asked_for_by_name_is_taken(settings: Settings) -> None:
    assert init(replace(settings, group_protocol="classic"), partitions=1).info.group_protocol == "classic"
    assert init(replace(settings, group_protocol="consumer")).info.group_protocol == "consumer"
    found = read_namespace(settings)
    assert found is not None
    assert found.group_protocol == "consumer"


def test_one_node_is_warned_of_and_accepted(settings: Settings) -> None:
    report = init(settings, partitions=1)
    assert any("replication is 1 (one node)" in warning for warning in report.warnings)


def test_what_the_broker_refuses_is_an_error_with_its_reason(settings: Settings) -> None:
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        Admin(settings).set_group_config("g", {"consumer.session.timeout.ms": "1"})
