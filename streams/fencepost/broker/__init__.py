"""The embedded Kafka: a real Apache Kafka on this machine's loopback, one node or three.

`Cluster` is for programs and tests; it ends with the process that started it. `up`, `down` and `status` are for the
command line: what `up` starts goes on until `down`. Every error is a `BrokerError` of one line that says what to do.
"""

from .cluster import Cluster
from .control import Status, down, status, up
from .errors import BrokerError
from .settings import NodeOptions, ProxyListener

__all__ = ["BrokerError", "Cluster", "NodeOptions", "ProxyListener", "Status", "down", "status", "up"]
