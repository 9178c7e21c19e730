"""The one request this package sends to Kafka: which brokers serve? No client library is needed for it.

Format: Metadata request and response, version 1, as in Kafka's protocol guide (big-endian, length-prefixed frame).
"""

from __future__ import annotations

import socket
import struct

_METADATA, _VERSION, _CORRELATION = 3, 1, 7
_CLIENT_ID = b"fencepost-broker"


def serving_brokers(address: str, port: int, timeout_s: float = 2.0) -> frozenset[int]:
    """The node IDs of the brokers that the one at this address knows to be alive and unfenced.

    Raises OSError if it does not answer in time, ValueError if the answer is not Kafka's.
    """
    request = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT_ID)) + _CLIENT_ID
    request += struct.pack(">i", 0)  # no topics
    with socket.create_connection((address, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        length = int.from_bytes(_read(connection, 4))
        if not 8 <= length <= 1 << 20:
            raise ValueError(f"{address}:{port} does not speak Kafka's protocol")
        return _brokers(_read(connection, length))


def _brokers(answer: bytes) -> frozenset[int]:
    correlation, count = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION:
        raise ValueError("the answer belongs to another request")
    at = 8
    ids = set()
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", answer, at)
        at = _after_string(answer, at + 4)  # host
        at = _after_string(answer, at + 4)  # port, then rack
        ids.add(node_id)
    return frozenset(ids)


def _after_string(data: bytes, at: int) -> int:
    length: int = struct.unpack_from(">h", data, at)[0]  # -1: null
    return at + 2 + max(length, 0)


def _read(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
