"""Kafka's classes, loaded and verified beforehand: a broker is up in half the time and with half the work.

Java can write the classes it has loaded to an archive (class data sharing) and map them into the next process. The
archive lies in the cache beside the jars, with its checksum; Java itself refuses one whose jars or whose Java are
others. Without it everything works, more slowly.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from .jars import KafkaJars, cache_folder
from .java import java_text


def find_archive(java: Path, jars: KafkaJars) -> Path | None:
    """The archive for this Java and these jars, if it is there and whole."""
    archive = _place(java, jars)
    checksum = archive.with_suffix(".sha256")
    if not (archive.is_file() and checksum.is_file()):
        return None
    return archive if checksum.read_text() == _sha256(archive) else None


def make_archive(java: Path, jars: KafkaJars) -> Path | None:
    """Runs a broker for a moment, in its own folder, to have Java write the archive. None where we keep no cache."""
    from .cluster import Cluster  # which looks for archives itself

    archive = _place(java, jars)
    if jars.folder != cache_folder():
        return None
    with tempfile.TemporaryDirectory(prefix=f"{archive.name}.making-", dir=archive.parent) as making:
        draft = Path(making) / archive.name
        with Cluster(Path(making) / "cluster", jvm_flags=(f"-XX:ArchiveClassesAtExit={draft}",), archive=False):
            pass  # being ready is all the practice it needs
        if not draft.is_file():
            return None
        checksum = archive.with_suffix(".sha256")
        checksum.unlink(missing_ok=True)  # never an old sum beside a new archive
        os.replace(draft, archive)
        checksum.write_text(_sha256(archive))
    return archive


def _place(java: Path, jars: KafkaJars) -> Path:
    which_java = hashlib.sha256(f"{java.resolve()}\n{java_text(java)}".encode()).hexdigest()[:12]
    return cache_folder().with_name(f"kafka-{jars.version}-java-{which_java}.jsa")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
