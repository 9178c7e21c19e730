"""The same Kafka from a container: what the embedded one does, it does too."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.containers.conftest import ContainerKafka

WAIT_S = 30.0


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(
    container_kafka: ContainerKafka, namespace: str
) -> None:
    servers = {"bootstrap.servers": container_kafka.bootstrap}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(namespace, 1, 1)])[namespace].result(WAIT_S)
    producer = Producer({**servers, "transactional.id": namespace})
    producer.init_transactions(WAIT_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(namespace, value)
        producer.flush(WAIT_S)
        end(WAIT_S)

    consumer = Consumer({**servers, "group.id": namespace, "enable.auto.commit": False})
    consumer.assign([TopicPartition(namespace, 0, 0)])
    first = consumer.poll(WAIT_S)
    consumer.close()
    assert first is not None
    assert first.error() is None
    assert first.value() == b"committed"


def test_settings_given_in_the_environment_reach_the_broker(container_kafka: ContainerKafka) -> None:
    admin = AdminClient({"bootstrap.servers": container_kafka.bootstrap})
    broker = ConfigResource(ResourceType.BROKER, "1")
    config = admin.describe_configs([broker])[broker].result(WAIT_S)
    assert config["log.message.timestamp.type"].value == "LogAppendTime"
    assert config["group.consumer.min.session.timeout.ms"].value == "1000"


def test_a_paused_container_answers_nothing_until_it_goes_on(container_kafka: ContainerKafka) -> None:
    docker_container = container_kafka.container.get_wrapped_container()
    docker_container.pause()
    try:
        assert not container_kafka.serves()
    finally:
        docker_container.unpause()
    give_up_at = time.monotonic() + WAIT_S
    while not container_kafka.serves():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
