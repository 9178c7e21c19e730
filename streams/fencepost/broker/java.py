"""Finds a Java that can run Kafka."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from .errors import BrokerError

OLDEST_JAVA = 17
_MEND = (
    f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless), name one with "
    "JAVA_HOME, or use a Kafka of your own with --bootstrap"
)


def find_java() -> Path:
    """The `java` of JAVA_HOME, else the one on PATH. Raises BrokerError if there is none or it is older than 17."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if java is None:
        found = shutil.which("java")
        if found is None:
            raise BrokerError(f"no Java found on PATH: {_MEND}")
        java = Path(found)
    elif not os.access(java, os.X_OK):
        raise BrokerError(f"JAVA_HOME is {home}, but {java} cannot be run: correct or unset JAVA_HOME, or {_MEND}")
    major = java_major(java)
    if major < OLDEST_JAVA:
        raise BrokerError(f"{java} is Java {major}, too old for Kafka: {_MEND}")
    return java


def java_major(java: Path) -> int:
    """The feature version that `java -version` tells (8 for "1.8.0_402"). Raises BrokerError if it tells none."""
    match = re.search(r'version "(?:1\.)?(\d+)', java_text(java))
    if match is None:
        raise BrokerError(f"{java} -version told no version: {_MEND}")
    return int(match[1])


@functools.cache
def java_text(java: Path) -> str:
    """What `java -version` prints: the version and the build. Raises BrokerError if it cannot be run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"{java} -version failed ({error}): {_MEND}") from error
    return told.stderr + told.stdout
