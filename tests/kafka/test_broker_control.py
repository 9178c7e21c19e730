"""`up`, `down`, `status`, and every way in which starting can go wrong: one line that says what and how to mend it."""

from __future__ import annotations

import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.broker import BrokerError, Cluster, Status, down, jars, status, up
from fencepost.broker.archive import find_archive, make_archive
from fencepost.broker.identity import read_identity, write_identity
from fencepost.broker.java import find_java
from fencepost.broker.ports import choose_ports
from fencepost.broker.process import Process
from fencepost.broker.wire import serving_brokers


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "cluster"
    yield place
    if (place / "cluster.json").exists():
        Cluster(place, nodes=len(list(place.glob("node-*"))) or 1).discard()


@pytest.fixture
def stopped(tmp_path_factory: pytest.TempPathFactory, kafka: Cluster) -> Path:
    """A folder of a cluster that was formatted once: a copy of the running one's skeleton, without its data."""
    place = tmp_path_factory.mktemp("stopped")
    shutil.copy(kafka.folder / "cluster.json", place)
    data = place / "node-1" / "data"
    data.mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(kafka.data_dir(1) / name, data)
    return place


def free_port() -> int:
    return choose_ports(("127.0.0.1",), 1)[0]


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def error_of(call: object, *arguments: object, **named: object) -> str:
    assert callable(call)
    with pytest.raises(BrokerError) as failed:
        call(*arguments, **named)
    text = str(failed.value)
    assert "\n" not in text
    return text


def test_up_outlives_the_command_and_down_ends_it(folder: Path) -> None:
    port = free_port()
    code = f"from pathlib import Path; from fencepost.broker import up; up(Path({str(folder)!r}), port={port})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90)
    here = status(folder)
    assert here.running
    assert here.bootstrap == f"127.0.0.1:{port}"
    assert serving_brokers("127.0.0.1", port) == {1}
    pid = here.nodes[0].pid
    assert pid is not None
    broker = Process.of(pid)

    assert up(folder) == here  # once more: nothing to do

    assert down(folder) == here
    assert not broker.alive()
    assert not status(folder).running


def test_status_of_an_empty_folder_tells_that_there_is_none(folder: Path) -> None:
    assert status(folder) == Status(folder, None, None, ())
    assert "holds no cluster" in error_of(down, folder)


def test_down_signals_no_stranger_who_got_the_brokers_process_id(stopped: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        started = Process.of(stranger.pid).started
        (stopped / "node-1" / "process").write_text(f"{stranger.pid} {started}9\n")
        assert not status(stopped).running
        down(stopped)
        assert stranger.poll() is None
    finally:
        stranger.communicate()
    assert stranger.returncode == 0


def test_a_damaged_process_file_is_explained(stopped: Path) -> None:
    (stopped / "node-1" / "process").write_text("what?")
    text = error_of(status, stopped)
    assert "node-1/process is damaged" in text
    assert "delete that file" in text


def test_a_port_in_use_is_named_with_its_holder(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        text = error_of(up, folder, port=port)
    assert f"port {port} on 127.0.0.1 is in use by" in text
    assert "choose another port" in text


@pytest.mark.parametrize("port", [0, -1, 65535, 100_000])
def test_an_impossible_port_is_refused(folder: Path, port: int) -> None:
    assert "1 to 65534" in error_of(up, folder, port=port)
    assert not folder.exists()


def test_two_nodes_are_refused(folder: Path) -> None:
    assert "give 1 or 3" in error_of(up, folder, nodes=2)
    assert not folder.exists()


def test_another_port_for_a_running_cluster_is_refused(kafka: Cluster) -> None:
    text = error_of(up, kafka.folder, port=free_port())
    assert "runs on port" in text
    assert "stop it first" in text


def test_the_folder_of_another_cluster_is_refused(stopped: Path) -> None:
    text = error_of(up, stopped, nodes=3)
    assert "holds another cluster" in text
    assert "choose another folder" in text


def test_a_folder_with_other_things_is_refused_and_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    assert "is not empty and holds no cluster" in error_of(up, folder)
    assert [entry.name for entry in folder.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "choose another folder" in error_of(up, tmp_path / "file" / "below")


def test_data_of_another_cluster_is_refused(stopped: Path) -> None:
    meta = stopped / "node-1" / "data" / "meta.properties"
    lines = [
        line if not line.startswith("cluster.id") else "cluster.id=other" for line in meta.read_text().splitlines()
    ]
    meta.write_text("\n".join(lines))
    text = error_of(up, stopped)
    assert "of other" in text
    assert "put the right one back" in text


def test_a_data_folder_that_lost_its_identity_is_half_written(stopped: Path) -> None:
    (stopped / "node-1" / "data" / "meta.properties").unlink()
    text = error_of(up, stopped)
    assert "is half-written" in text
    assert f"delete {stopped}" in text


def test_a_damaged_identity_is_explained(stopped: Path) -> None:
    (stopped / "cluster.json").write_text('{"cluster_id": "x"')
    text = error_of(up, stopped)
    assert "cluster.json is damaged" in text
    assert f"delete the folder {stopped}" in text


def test_a_start_interrupted_while_formatting_is_taken_up_again(folder: Path) -> None:
    with Cluster(folder) as cluster:
        identity = read_identity(folder)
        assert identity is not None
    # As it would have been left: identity written, formatting begun.
    write_identity(folder, replace(identity, formatted=False))
    (cluster.data_dir(1) / "meta.properties").unlink()
    with Cluster(folder) as again:
        assert serving_brokers("127.0.0.1", again.ports.client) == {1}
        assert again.bootstrap == cluster.bootstrap


class TestJava:
    def test_none_on_the_path(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        text = error_of(up, folder, port=free_port())
        assert "no Java found" in text
        assert "apt-get install openjdk-17-jre-headless" in text

    def test_too_old(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        program(tmp_path / "bin", "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "is Java 11, too old" in error_of(up, folder, port=free_port())

    def test_the_old_way_of_counting_is_understood(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        program(tmp_path, "java", "echo 'java version \"1.8.0_402\"' >&2")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        assert "is Java 8, too old" in error_of(up, folder, port=free_port())

    def test_java_home_that_holds_none(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        text = error_of(up, folder, port=free_port())
        assert f"JAVA_HOME is {tmp_path}" in text
        assert "correct or unset JAVA_HOME" in text

    def test_one_that_tells_no_version(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        program(tmp_path / "bin", "java", "exit 3")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "told no version" in error_of(up, folder, port=free_port())


class TestJars:
    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A cache of its own, filled with links to the real one's jars."""
        real = jars.find_jars().folder
        monkeypatch.delenv(jars.HOME_VARIABLE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        place = jars.cache_folder()
        place.mkdir(parents=True)
        for jar in real.glob("*.jar"):
            (place / jar.name).symlink_to(jar)
        return place

    def without_maven(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

    def test_a_full_cache_needs_no_maven(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.without_maven(tmp_path, monkeypatch)
        assert jars.find_jars().folder == cache

    def test_no_maven_is_explained(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.rmtree(cache)
        self.without_maven(tmp_path, monkeypatch)
        text = error_of(jars.find_jars)
        assert "no Maven found" in text
        assert "apt-get install maven" in text
        assert jars.HOME_VARIABLE in text

    def test_maven_without_a_network_is_explained_and_leaves_nothing(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.rmtree(cache)
        program(tmp_path, "mvn", "echo '[ERROR] Failed to execute goal: unknown host'; exit 1")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        text = error_of(jars.find_jars)
        assert "Failed to execute goal: unknown host" in text
        assert "try again with a network" in text
        assert [entry.name for entry in cache.parent.iterdir()] == ["lock"]

    def test_a_half_filled_cache_is_filled_again(self, cache: Path) -> None:
        lost = cache / next(iter(jars.read_manifest(jars.broker_jar_manifest())))
        lost.unlink()
        assert jars.find_jars().folder == cache
        assert lost.is_file()
        assert len(list(cache.glob("*.jar"))) == len(jars.read_manifest(jars.broker_jar_manifest()))

    def test_a_changed_jar_is_refused(self, cache: Path) -> None:
        changed = cache / f"kafka-clients-{jars.pinned_version()}.jar"
        changed.unlink()
        changed.write_bytes(b"something else")
        text = error_of(jars.find_jars)
        assert f"{changed.name} has the SHA-256" in text
        assert f"delete {cache}" in text

    def test_a_stray_jar_is_refused(self, cache: Path) -> None:
        (cache / "stray.jar").write_bytes(b"")
        assert "stray.jar is not one of Kafka's jars" in error_of(jars.find_jars)

    def test_a_kafka_home_is_used_instead(self, cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = cache.parent / "home"
        home.mkdir()
        cache.rename(home / "libs")
        monkeypatch.setenv(jars.HOME_VARIABLE, str(home))
        assert jars.find_jars() == jars.KafkaJars(home / "libs", jars.pinned_version())
        with Cluster(folder) as cluster:
            command = Path(f"/proc/{cluster.pid(1)}/cmdline").read_text()
            assert f"{home}/libs/kafka-clients-" in command
            assert str(cache) not in command

    def test_a_kafka_home_without_kafka_is_explained(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(jars.HOME_VARIABLE, str(tmp_path))
        assert "name an unpacked Kafka distribution" in error_of(jars.find_jars)

    def test_a_kafka_with_zookeeper_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "libs").mkdir()
        (tmp_path / "libs" / "kafka_2.13-3.9.0.jar").write_bytes(b"")
        monkeypatch.setenv(jars.HOME_VARIABLE, str(tmp_path))
        assert "holds Kafka 3.9.0: name a Kafka 4.0 or newer" in error_of(jars.find_jars)


def test_the_archive_of_classes_is_used_only_while_it_is_whole(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = jars.find_jars()
    java = find_java()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jars.cache_folder().parent.mkdir()
    jars.cache_folder().symlink_to(real.folder)
    mine = jars.find_jars()
    assert find_archive(java, mine) is None
    archive = make_archive(java, mine)
    assert archive is not None
    assert find_archive(java, mine) == archive
    with Cluster(folder) as cluster:
        assert str(archive) in Path(f"/proc/{cluster.pid(1)}/maps").read_text()
    archive.chmod(0o644)
    with open(archive, "r+b") as file:
        file.seek(10_000)
        file.write(b"changed")
    assert find_archive(java, mine) is None
