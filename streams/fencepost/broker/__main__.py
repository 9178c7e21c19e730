"""`python -m fencepost.broker`: makes sure of Java and Kafka's jars, so that later starts need no network."""

from __future__ import annotations

import sys

from .archive import find_archive, make_archive
from .errors import BrokerError
from .jars import find_jars
from .java import find_java


def main() -> int:
    try:
        java = find_java()
        jars = find_jars()
        archive = find_archive(java, jars) or make_archive(java, jars)
    except BrokerError as error:
        print(f"fencepost: {error}", file=sys.stderr)
        return 1
    print(f"Kafka {jars.version} in {jars.folder}, run by {java}{', classes archived' if archive else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
