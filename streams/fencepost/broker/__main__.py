"""`python -m fencepost.broker`: makes sure of Java and Kafka's jars, so that later starts need no network."""

from __future__ import annotations

import sys

from .errors import BrokerError
from .jars import find_jars
from .java import find_java


def main() -> int:
    try:
        java = find_java()
        jars = find_jars()
    except BrokerError as error:
        print(f"fencepost: {error}", file=sys.stderr)
        return 1
    print(f"Kafka {jars.version} in {jars.folder}, run by {java}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
