"""The embedded Kafka: it is a real one, keeps its data, and can be broken on purpose."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from fencepost.broker import BrokerError, Cluster, NodeOptions, ProxyListener
from fencepost.broker.ports import choose_ports
from fencepost.broker.process import Process
from fencepost.broker.settings import Ports
from fencepost.broker.wire import serving_brokers

WAIT_S = 30.0


def client(bootstrap: str, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, **more}


def make_topic(bootstrap: str, name: str, copies: int = 1, **config: str) -> None:
    admin = AdminClient(client(bootstrap))
    for future in admin.create_topics([NewTopic(name, 1, copies, config=config)]).values():
        future.result(WAIT_S)


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    """Returns when all are acknowledged by every in-sync replica; raises if one is not."""
    failed: list[object] = []
    producer = Producer(client(bootstrap, acks="all", **{"delivery.timeout.ms": 30_000}))
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert failed == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` committed values of partition 0, or fewer if they do not come within the bound."""
    consumer = Consumer(client(bootstrap, **{"group.id": "reader", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    give_up_at = time.monotonic() + WAIT_S
    values: list[bytes] = []
    while len(values) < count and time.monotonic() < give_up_at:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("three"), nodes=3)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.discard()


def broker_config(bootstrap: str, node_id: int = 1) -> dict[str, str]:
    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    admin = AdminClient(client(bootstrap))
    answers = admin.describe_configs([resource])
    return {name: entry.value for name, entry in answers[resource].result(WAIT_S).items()}


def test_it_stamps_records_with_its_own_time_and_makes_no_topic_unasked(kafka: Cluster) -> None:
    config = broker_config(kafka.bootstrap)
    assert config["log.message.timestamp.type"] == "LogAppendTime"
    assert config["auto.create.topics.enable"] == "false"
    assert config["unclean.leader.election.enable"] == "false"
    assert config["transaction.max.timeout.ms"] == "60000"
    assert config["transaction.abort.timed.out.transaction.cleanup.interval.ms"] == "1000"


def test_both_group_protocols_may_have_sessions_of_one_second(kafka: Cluster, namespace: str) -> None:
    assert broker_config(kafka.bootstrap)["group.min.session.timeout.ms"] == "1000"
    admin = AdminClient(client(kafka.bootstrap))
    wanted = {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "200"}
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in wanted.items()]
    group = ConfigResource(ResourceType.GROUP, namespace, incremental_configs=entries)
    assert admin.incremental_alter_configs([group])[group].result(WAIT_S) is None


def test_a_member_of_the_new_group_protocol_is_assigned(kafka: Cluster, namespace: str) -> None:
    make_topic(kafka.bootstrap, namespace)
    consumer = Consumer(client(kafka.bootstrap, **{"group.id": namespace, "group.protocol": "consumer"}))
    assigned: list[TopicPartition] = []
    consumer.subscribe([namespace], on_assign=lambda _, partitions: assigned.extend(partitions))
    give_up_at = time.monotonic() + WAIT_S
    while not assigned and time.monotonic() < give_up_at:
        consumer.poll(0.2)
    consumer.close()
    assert [p.topic for p in assigned] == [namespace]


def test_an_aborted_transaction_is_hidden_and_a_committed_one_is_not(kafka: Cluster, namespace: str) -> None:
    make_topic(kafka.bootstrap, namespace)
    producer = Producer(client(kafka.bootstrap, **{"transactional.id": namespace}))
    producer.init_transactions(WAIT_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(namespace, value)
        producer.flush(WAIT_S)
        end(WAIT_S)
    assert read(kafka.bootstrap, namespace, 1) == [b"committed"]


def test_it_listens_on_loopback_only(kafka: Cluster) -> None:
    import psutil

    pid = kafka.pid(1)
    assert pid is not None
    listening = {c.laddr.ip for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_a_restart_keeps_data_and_ports(folder: Path) -> None:
    with Cluster(folder) as first:
        make_topic(first.bootstrap, "kept")
        write(first.bootstrap, "kept", b"1", b"2")
        bootstrap = first.bootstrap
    with Cluster(folder) as again:
        assert again.bootstrap == bootstrap
        assert read(again.bootstrap, "kept", 2) == [b"1", b"2"]


def test_what_was_acknowledged_survives_a_kill(folder: Path) -> None:
    with Cluster(folder) as cluster:
        make_topic(cluster.bootstrap, "kept")
        write(cluster.bootstrap, "kept", b"1", b"2")
        cluster.kill(1)
        assert cluster.running() == ()
        cluster.start_node(1)
        assert read(cluster.bootstrap, "kept", 2) == [b"1", b"2"]


def test_a_frozen_broker_answers_nothing_until_it_is_thawed_and_can_be_stopped(folder: Path) -> None:
    with Cluster(folder) as cluster:
        cluster.freeze(1)
        assert cluster.running() == (1,)
        with pytest.raises(TimeoutError):
            serving_brokers("127.0.0.1", cluster.ports.client, timeout_s=0.5)
        cluster.thaw(1)
        cluster.wait_ready()
        assert serving_brokers("127.0.0.1", cluster.ports.client) == {1}
        cluster.freeze(1)
    assert cluster.running() == ()


def test_three_nodes_keep_three_copies_and_want_two_in_sync(three: Cluster, namespace: str) -> None:
    assert three.bootstrap.count(",") == 2
    make_topic(three.bootstrap, namespace, copies=-1)
    admin = AdminClient(client(three.bootstrap))
    give_up_at = time.monotonic() + WAIT_S
    while not (partitions := admin.list_topics(namespace, WAIT_S).topics[namespace].partitions):
        assert time.monotonic() < give_up_at  # the node that was asked had not heard of the topic yet
    assert sorted(partitions[0].replicas) == [1, 2, 3]
    assert broker_config(three.bootstrap)["min.insync.replicas"] == "2"


def test_three_nodes_serve_on_when_one_is_killed_and_take_it_back(three: Cluster, namespace: str) -> None:
    make_topic(three.bootstrap, namespace, copies=3)
    write(three.bootstrap, namespace, b"1")
    three.kill(2)
    assert three.running() == (1, 3)
    write(three.bootstrap, namespace, b"2")
    three.start_node(2)
    assert serving_brokers("127.0.0.12", three.ports.client) == {1, 2, 3}
    assert read(three.bootstrap, namespace, 2) == [b"1", b"2"]


def test_a_node_of_three_restarts_while_the_others_serve(three: Cluster) -> None:
    before = three.pid(3)
    three.restart(3)
    assert three.pid(3) not in (None, before)
    assert serving_brokers("127.0.0.13", three.ports.client) == {1, 2, 3}


def test_a_node_takes_a_proxy_and_its_own_settings_environment_and_prefix(folder: Path) -> None:
    options = NodeOptions(settings={"message.max.bytes": "4242"}, env={"PROBE": "seen"}, prefix=("nice", "-n", "1"))
    with Cluster(
        folder, proxy=ProxyListener(19_999), settings={"message.max.bytes": "1"}, options={1: options}
    ) as cluster:
        host, port = cluster.proxy_target(1)
        through, direct = AdminClient(client(f"{host}:{port}")), AdminClient(client(cluster.bootstrap))
        named = through.list_topics(timeout=WAIT_S).brokers[1]
        assert (named.host, named.port) == ("127.0.0.1", 19_999)
        assert direct.list_topics(timeout=WAIT_S).brokers[1].port == cluster.ports.client

        assert broker_config(cluster.bootstrap)["message.max.bytes"] == "4242"
        pid = cluster.pid(1)
        assert b"PROBE=seen" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert os.getpriority(os.PRIO_PROCESS, pid or 0) == os.getpriority(os.PRIO_PROCESS, 0) + 1


def test_a_broker_ends_when_the_program_that_started_it_is_killed(folder: Path) -> None:
    code = (
        "import sys; from fencepost.broker import Cluster\n"
        f"cluster = Cluster({str(folder)!r}); cluster.start(); print(cluster.pid(1), flush=True); sys.stdin.read()"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        broker = Process.of(int(program.stdout.readline()))
    finally:
        program.kill()
        program.wait()
        program.stdin.close()
        program.stdout.close()
    assert broker.wait(WAIT_S)
    assert not broker.alive()


def test_a_start_in_a_folder_that_runs_already_starts_nothing(kafka: Cluster) -> None:
    before = kafka.pid(1)
    again = Cluster(kafka.folder)
    again.start()
    assert again.pid(1) == before


def test_a_start_that_fails_ends_no_broker_it_did_not_start(kafka: Cluster) -> None:
    before = kafka.pid(1)
    with pytest.raises(BrokerError, match="stop it first"):
        Cluster(kafka.folder, ports=Ports(1, 2)).start()
    assert kafka.pid(1) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.io.threads", "none"), ("metric.reporters", "no.such.Reporter")],
    ids=["seen when formatting", "seen when starting"],
)
def test_a_setting_kafka_refuses_is_told_in_one_line(folder: Path, name: str, value: str) -> None:
    cluster = Cluster(folder, settings={name: value})
    with pytest.raises(BrokerError, match=name if value == "none" else value) as failed:
        cluster.start()
    assert "\n" not in str(failed.value)
    assert cluster.running() == ()


def test_a_port_taken_between_the_look_and_the_bind_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        stolen = thief.getsockname()[1]
        good = choose_ports(("127.0.0.1",), 5)
        choices = iter([(stolen, *good[:2]), good[2:]])
        monkeypatch.setattr("fencepost.broker.cluster.choose_ports", lambda addresses, count: next(choices))
        monkeypatch.setattr("fencepost.broker.cluster.check_free", lambda address, port: None)
        with Cluster(folder) as cluster:
            assert cluster.ports.client == good[2]
            assert serving_brokers("127.0.0.1", good[2]) == {1}


def test_a_signal_to_a_node_that_does_not_run_is_refused(folder: Path) -> None:
    cluster = Cluster(folder)
    with pytest.raises(BrokerError, match="not running"):
        cluster.kill(1)
    with pytest.raises(BrokerError, match="there is no node 4"):
        cluster.freeze(4)


def test_a_process_is_not_signalled_when_its_id_belongs_to_another_now() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        stale = Process(other.pid, "some other start")
        assert not stale.alive()
        assert not stale.signal(signal.SIGKILL)
        assert stale.wait(0)
        assert other.poll() is None
    finally:
        other.communicate()
    assert other.returncode == 0
