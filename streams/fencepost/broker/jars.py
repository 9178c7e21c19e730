"""Kafka's jars: fetched through Maven into a cache outside the repository, every one checked at each start.

The cache is `${XDG_CACHE_HOME:-~/.cache}/fencepost/kafka-VERSION`. It is filled in a folder beside it and renamed, so
that an interrupted fetch leaves no half-filled cache. `FENCEPOST_KAFKA_HOME` names a Kafka distribution to be used
instead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..resources import broker_jar_manifest, broker_pom
from .errors import BrokerError

HOME_VARIABLE = "FENCEPOST_KAFKA_HOME"
_POM_NAMESPACE = {"m": "http://maven.apache.org/POM/4.0.0"}
_USE_YOUR_OWN = f"set {HOME_VARIABLE} to an unpacked Kafka distribution, or use a running Kafka with --bootstrap"


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The folder with Kafka's jars, and Kafka's version."""

    folder: Path
    version: str

    @property
    def classpath(self) -> str:
        """Every jar by name: an archive of classes is good only for the very same list."""
        return ":".join(map(str, sorted(self.folder.glob("*.jar"))))


def find_jars() -> KafkaJars:
    """The jars to run, fetched first if need be. Raises BrokerError."""
    if home := os.environ.get(HOME_VARIABLE):
        return _jars_of_home(Path(home))
    manifest = read_manifest(broker_jar_manifest())
    jars = KafkaJars(cache_folder(), pinned_version())
    with _locked(jars.folder.parent):
        if _missing(jars.folder, manifest):
            _fetch(jars.folder, manifest)
        _check(jars.folder, manifest, mend=f"delete {jars.folder} and start again")
    return jars


def cache_folder() -> Path:
    """Where the jars of the pinned version are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "fencepost" / f"kafka-{pinned_version()}"


def pinned_version() -> str:
    """The version of Kafka that the pom names."""
    version = ElementTree.parse(broker_pom()).findtext("m:properties/m:kafka.version", namespaces=_POM_NAMESPACE)
    if not version:
        raise BrokerError(f"{broker_pom()} names no kafka.version: install the package again")
    return version


def read_manifest(path: Path) -> dict[str, str]:
    """Jar name → SHA-256 in hex, from lines `sum  name`."""
    sums = {}
    for line in path.read_text().splitlines():
        checksum, name = line.split()
        sums[name] = checksum
    return sums


def _jars_of_home(home: Path) -> KafkaJars:
    libs = home / "libs"
    for jar in sorted(libs.glob("kafka_2.1?-*.jar")):
        if match := re.fullmatch(r"kafka_2\.\d+-(\d+)(\.[\w.-]+)\.jar", jar.name):
            if int(match[1]) < 4:
                raise BrokerError(f"{HOME_VARIABLE}={home} holds Kafka {match[1]}{match[2]}: name a Kafka 4.0 or newer")
            return KafkaJars(libs, match[1] + match[2])
    raise BrokerError(f"{HOME_VARIABLE}={home} has no libs/kafka_2.13-VERSION.jar: name an unpacked Kafka distribution")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time fills or checks the cache."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except PermissionError as error:
        raise BrokerError(f"{error.filename} cannot be written: make it writable or set XDG_CACHE_HOME") from error


def _missing(folder: Path, manifest: Mapping[str, str]) -> list[str]:
    return [name for name in manifest if not (folder / name).is_file()]


def _check(folder: Path, manifest: Mapping[str, str], *, mend: str) -> None:
    for jar in sorted(folder.glob("*.jar")):
        expected = manifest.get(jar.name)
        if expected is None:
            raise BrokerError(f"{jar} is not one of Kafka's jars: {mend}")
        with open(jar, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise BrokerError(f"{jar} has the SHA-256 {found[:16]}… and not {expected[:16]}…: {mend}")


def _fetch(folder: Path, manifest: Mapping[str, str]) -> None:
    print(f"fencepost: fetching Kafka {pinned_version()} through Maven (once, about 55 MB)", file=sys.stderr)
    filling = Path(tempfile.mkdtemp(prefix=f"{folder.name}.filling-", dir=folder.parent))
    try:
        _copy_with_maven(filling)
        _check(filling, manifest, mend="Maven's own copy is damaged: delete it below ~/.m2/repository and start again")
        if missing := _missing(filling, manifest):
            raise BrokerError(f"Maven did not bring {missing[0]}: install the package again, or {_USE_YOUR_OWN}")
        if folder.exists():  # an incomplete cache, as a stray hand leaves it
            shutil.rmtree(folder)
        filling.chmod(0o755)
        filling.rename(folder)
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _copy_with_maven(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(
            f"no Maven found, which fetches Kafka once: install it (Debian: apt-get install maven), or {_USE_YOUR_OWN}"
        )
    command = [maven, "--batch-mode", "--file", str(broker_pom()), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}", "-Dstyle.color=never"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[ERROR]")]
        reason = (errors or ["[ERROR] it told no reason"])[0].removeprefix("[ERROR] ")
        raise BrokerError(f"Maven could not fetch Kafka ({reason}): try again with a network, or {_USE_YOUR_OWN}")
