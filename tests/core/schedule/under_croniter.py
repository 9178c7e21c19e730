"""Runs the schedule tests with given releases of croniter, each put into a folder of its own before the environment's.

    .venv/bin/python tests/core/schedule/under_croniter.py 5.0.1 7.0.0 [-- pytest arguments]

The folders lie in `.venv/` and are kept; the releases that may be asked for are pinned with hashes in
`croniter-RELEASE.txt` beside this file. The exit code is that of the first run that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def install(release: str) -> Path:
    pins = HERE / f"croniter-{release}.txt"
    folder = ROOT / ".venv" / f"croniter-{release}"
    done = folder / f"croniter-{release}.dist-info"
    if not done.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        # The environment may hold packages that want another release; here the other one is what is wanted.
        subprocess.run([*pip, "--no-warn-conflicts", "--target", str(folder), "-r", str(pins)], check=True)
    return folder


def run_tests(release: str, arguments: list[str]) -> int:
    folder = install(release)
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT / "streams"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "FENCEPOST_TEST_CRONITER": release}
    print(f"--- croniter {release} ---", flush=True)
    command = [sys.executable, "-m", "pytest", str(HERE), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    releases, more = arguments[:cut], arguments[cut + 1 :]
    known = sorted(path.stem.removeprefix("croniter-") for path in HERE.glob("croniter-*.txt"))
    if not releases or not set(releases) <= set(known):
        print(f"under_croniter: give releases of croniter; allowed: {', '.join(known)}", file=sys.stderr)
        return 2
    return next((code for code in [run_tests(release, more) for release in releases] if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
