"""Files: locked by the kernel, with the highest epochs beside them."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from fencepost import RunContext
from fencepost.fencing import StaleEpoch, Token, files


def run(epoch: int, task: str = "report") -> RunContext:
    return RunContext(task, epoch)


def test_a_stale_epoch_cannot_replace_the_file(tmp_path: Path) -> None:
    target = tmp_path / "today.csv"
    files.write(target, b"two", run(2))
    files.write(target, b"two again", run(2), mode=0o600)
    with pytest.raises(StaleEpoch, match="report: epoch 1 is stale, epoch 2 was here already"):
        files.write(target, b"one", run(1))
    assert target.read_bytes() == b"two again"
    assert target.stat().st_mode & 0o777 == 0o600
    files.write(target, b"another task's", run(1, "other"))
    assert json.loads((tmp_path / "today.csv.epochs").read_text()) == {"fencepost/report": 2, "fencepost/other": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"today.csv", "today.csv.epochs", "today.csv.epochs.lock"}


def test_what_fails_inside_leaves_the_old_file_and_keeps_the_epoch(tmp_path: Path) -> None:
    target = tmp_path / "log"
    files.write(target, b"old\n", run(1))
    with pytest.raises(ZeroDivisionError), files.guarded(target, run(2)):
        raise ZeroDivisionError
    with pytest.raises(StaleEpoch):
        files.write(target, b"stale", run(1))
    assert target.read_bytes() == b"old\n"
    with files.guarded(target, run(2)) as path, path.open("ab") as file:
        file.write(b"more\n")
    assert target.read_bytes() == b"old\nmore\n"


def test_a_sidecar_that_holds_something_else_lets_nobody_in(tmp_path: Path) -> None:
    target = tmp_path / "file"
    for bad in (b"", b"{", b"[1]", b'{"a": "b"}'):
        (tmp_path / "file.epochs").write_bytes(bad)
        with pytest.raises(files.BadSidecar, match=r"file\.epochs holds no epochs"):
            files.write(target, b"data", run(9))
    assert not target.exists()


def test_a_folder_that_is_not_there_is_an_error_and_nothing_more(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "no" / "file", b"data", run(1))


def write_all(target: Path, epochs: range) -> None:
    for epoch in epochs:
        with suppress(StaleEpoch):
            files.write(target, str(epoch).encode(), run(epoch))


def test_processes_that_write_at_once_never_go_back_to_an_older_epoch(tmp_path: Path) -> None:
    target = tmp_path / "file"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_all, args=(target, range(first, 60, 4))) for first in (1, 2, 3, 4)]
    for writer in writers:
        writer.start()
    seen = [0]
    while any(writer.is_alive() for writer in writers):
        if target.exists():
            seen.append(int(target.read_bytes()))  # never half a file: it is replaced as a whole
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert seen == sorted(seen)
    assert target.read_bytes() == b"59"


def hold(target: Path, inside: multiprocessing.connection.Connection) -> None:
    with files.guarded(target, run(1)):
        inside.send("inside")
        signal.pause()


def test_a_holder_that_is_killed_lets_the_next_one_in(tmp_path: Path) -> None:
    target = tmp_path / "file"
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    holder = fork.Process(target=hold, args=(target, theirs))
    holder.start()
    assert ours.recv() == "inside"
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    files.write(target, b"two", run(2))
    holder.join()
    assert target.read_bytes() == b"two"


def test_a_store_of_files_serves_a_server_over_its_restarts(tmp_path: Path) -> None:
    with files.FileStore(tmp_path / "epochs").admit(Token("n", "t", 5)):
        pass
    with pytest.raises(StaleEpoch), files.FileStore(tmp_path / "epochs").admit(Token("n", "t", 4)):
        pytest.fail("inside")
