"""Free ports, and who holds one that is not free."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

import psutil

from .errors import BrokerError

# Below the range from which Linux gives ports to outgoing connections (32768 on): one of those could take a port
# between our look and Kafka's bind.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200


def choose_ports(addresses: Sequence[str], count: int) -> tuple[int, ...]:
    """`count` different ports that are free on every address. Raises BrokerError if none are found."""
    chosen: list[int] = []
    for _ in range(_TRIES):
        port = random.randrange(_FIRST, _LAST)
        if port not in chosen and all(is_free(address, port) for address in addresses):
            chosen.append(port)
        if len(chosen) == count:
            return tuple(chosen)
    raise BrokerError(f"no {count} free ports between {_FIRST} and {_LAST}: end something that listens there")


def check_free(address: str, port: int) -> None:
    """Raises BrokerError, naming the holder if it can be known, when the port is in use on the address."""
    if is_free(address, port):
        return
    holder = _holder(port)
    raise BrokerError(
        f"port {port} on {address} is in use{f' by {holder}' if holder else ''}: end that, or choose another port"
    )


def is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka binds: connections of an earlier listener that still wind down are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _holder(port: int) -> str | None:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr[1:] == (port,):
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        return None  # without the right to look: the port alone must do
    return None
