"""The peers' environments, from locks with hashes, kept in a cache folder; made when first needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.machine import REPOSITORY
from tests.bench.processes import BenchError


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fencepost" / "bench"


def environment(peer: str) -> Path:
    """The folder of the peer's environment. Raises BenchError if it cannot be made."""
    lock = REPOSITORY / "config" / f"requirements-bench-{peer}.txt"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"{peer}-py{version}-{digest}"
    done = folder / "complete"
    if done.exists():
        return folder
    print(f"making the environment of {peer} in {folder}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(peer, [sys.executable, "-m", "venv", folder])
    _run(peer, [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock])
    done.touch()
    return folder


def versions(folder: Path, *names: str) -> dict[str, str]:
    """Versions of packages in an environment."""
    code = "import sys, importlib.metadata as m; print(*(m.version(n) for n in sys.argv[1:]))"
    done = subprocess.run(
        [folder / "bin" / "python", "-c", code, *names], capture_output=True, text=True, check=True, cwd="/"
    )
    return dict(zip(names, done.stdout.split(), strict=True))


def _run(peer: str, command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise BenchError(f"the environment of {peer} could not be made: {' '.join(last)}")
