"""A campaign in small: faults of every sort on one broker and on three, judged from what the runs wrote themselves.

The whole one is `make campaign`. Each test ends with two verdicts: the judge's on the witness lines, and that of
`fencepost verify` on the topics.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pytest

from tests.conftest import note_broker
from tests.faults import cgroups, network
from tests.faults.arena import Setting
from tests.faults.campaign import Campaign
from tests.faults.checker import CHILD
from tests.faults.fault import Target
from tests.faults.kinds import ALL, Deck

pytestmark = [pytest.mark.faults, pytest.mark.slow]

# Seeds are kept: the same faults on the same victims each time, as far as real processes allow.
ONE_BROKER, THREE_BROKERS = 11, 12
ALONE = ["broker: SIGKILL, restarted", "clock of a broker: forward", "worker: joins"]
OF_WORKERS = ["worker: SIGKILL", "worker: SIGSTOP", "all processes", "guard: SIGKILL", "run: ", "control group",
              "network: worker and brokers, both", "two workers with one ID", "boot clock"]  # fmt: skip


def held(campaign: Campaign) -> None:
    """The verdicts, and that faults and runs were really there to be judged."""
    problems = [text for arena in campaign.arenas for text in [*arena.violations, *arena.problems]]
    assert not problems
    assert campaign.holds
    nodes = campaign.arenas[0].setting["nodes"]
    note_broker(f"embedded Apache Kafka, {nodes} node(s), under {campaign.done} faults")
    rounds = [this for arena in campaign.arenas for this in arena.rounds]
    assert campaign.done >= len(rounds) > 0
    assert all(this.recovered for this in rounds if not this.entries[0].kind.startswith("partitions"))
    for arena in campaign.arenas:
        assert arena.verify_code == 0
        assert arena.counts["lines"] > 10 * arena.counts["runs"] > 0
    # Mostly there is one arena; a fault that found nobody to strike is made up for in another, which may be short.
    assert campaign.arenas[0].counts["runs"] > 100
    assert campaign.arenas[0].counts["slots"] > 100


@pytest.mark.timeout(1200)
def test_faults_of_workers_and_of_the_only_broker_under_the_consumer_protocol(tmp_path: Path) -> None:
    setting = Setting(tasks=60, static=True)
    campaign = Campaign(
        16, ONE_BROKER, lambda *_: setting, print, (*OF_WORKERS, *ALONE, "partitions"), rounds=8, keep=tmp_path
    )
    campaign.run()
    held(campaign)


@pytest.mark.timeout(1200)
def test_faults_of_workers_and_of_one_broker_of_three_under_the_classic_protocol(tmp_path: Path) -> None:
    setting = Setting(nodes=3, protocol="classic", profile="swift", tasks=40)
    only = (
        "broker: SIGKILL in mid",
        "group coordinator",
        "broker: SIGSTOP, SIGCONT",
        "worker: SIGKILL",
        "run: SIGKILL",
    )
    campaign = Campaign(6, THREE_BROKERS, lambda *_: setting, print, only, last=False, rounds=5, keep=tmp_path)
    campaign.run()
    held(campaign)


# -- the harness itself ------------------------------------------------------------------------------------------------


def test_every_kind_of_fault_has_a_name_of_its_own_and_can_be_drawn() -> None:
    assert len({kind.name for kind in ALL}) == len(ALL)
    for kind in ALL:
        deck = Deck(random.Random(1), (kind.name,))
        assert kind in deck._kinds


def test_a_word_that_names_no_fault_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no fault is called so: earthquake; there are: .*worker: SIGKILL"):
        Deck(random.Random(1), ("earthquake",))


def test_one_seed_draws_the_same_faults() -> None:
    class Anything:
        setting = Setting(nodes=3, static=True)
        no_network = no_clock_shim = None
        small_disks = True
        workers: ClassVar[dict[str, object]] = {}

    drawn = []
    for _ in range(2):
        deck = Deck(random.Random(5))
        drawn.append([[kind.name for kind in deck.draw(Anything(), 3)] for _ in range(20)])  # type: ignore[arg-type]
    assert drawn[0] == drawn[1]
    assert any(len(names) == 3 for names in drawn[0])


def test_faults_of_a_broker_are_alone_in_their_round() -> None:
    alone = {kind.name for kind in ALL if kind.target in (Target.BROKER, Target.GROUP)}
    assert {"broker: disk full", "group coordinator: moved, and moved back"} <= alone


@pytest.mark.skipif(network.why_not() is not None, reason=str(network.why_not()))
def test_a_place_is_cut_off_one_way_and_mended_and_nothing_is_left() -> None:
    listen = "import socket, sys; s = socket.create_server((sys.argv[1], 4000)); print('up', flush=True)"
    listen += "; s.accept()[0].sendall(b'hi')"
    import socket
    import subprocess
    import sys

    with network.Network() as net:
        place = net.place("w1", 21)
        with subprocess.Popen(
            [*place.prefix, sys.executable, "-c", listen, place.address], stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            place.cut(network.FROM, [net.host])
            with pytest.raises(TimeoutError):
                socket.create_connection((place.address, 4000), timeout=0.3)
            place.mend()
            with socket.create_connection((place.address, 4000), timeout=20) as connection:
                assert connection.recv(10) == b"hi"
            assert server.wait(20) == 0
        names = [place.name]
    assert not any((Path("/var/run/netns") / name).exists() for name in names)


@pytest.mark.parametrize("root", [cgroups.V1, cgroups.V2])
def test_a_control_group_freezes_and_thaws(root: Path) -> None:
    import subprocess
    import sys

    if (reason := cgroups.why_not(root)) is not None:
        pytest.skip(reason)
    count = "import time\nwhile True: print(time.monotonic(), flush=True); time.sleep(0.01)"
    group = cgroups.Group(root, "try")
    with subprocess.Popen([sys.executable, "-c", count], stdout=subprocess.PIPE) as process:
        try:
            group.procs.write_text(str(process.pid))
            group.freeze()
            assert group.pids() == [process.pid]
            group.thaw()
            assert process.stdout is not None
            assert process.stdout.readline()
        finally:
            process.kill()
    group.remove()
    assert not group.path.exists()


def test_children_that_leave_their_session_write_under_the_epoch_too(tmp_path: Path) -> None:
    import os
    import signal
    import subprocess
    import sys
    import time

    from tests.faults import witness
    from tests.faults.checker import parse

    env = os.environ | {"FENCEPOST_TASK": "command/1", "FENCEPOST_EPOCH": "7"}
    command = [sys.executable, "-I", "-S", witness.__file__, str(tmp_path), "0.1"]
    assert subprocess.run(command, env=env, check=False).returncode == 0
    file = tmp_path / "command%2F1.log"
    until_s = time.monotonic() + 20
    children: set[int] = set()
    try:
        while len(children) < 2 and time.monotonic() < until_s:
            lines = [parse(raw) for raw in file.read_bytes().splitlines()]
            children = {line.pid for line in lines if line is not None and line.what == CHILD}
            time.sleep(0.01)
        assert len(children) == 2
        assert {line.epoch for line in lines if line is not None} == {7}
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
