"""Which hosts this worker's HTTP handlers may call, so that a definition cannot make it call whatever it can reach."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_USUAL_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215: wraps addresses of the own network
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291: an IPv4 address at the end of zeros
_NUMBERS = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}\.?")


@dataclass(frozen=True, slots=True)
class _Entry:
    host: str  # in lower case; "*": any; ".example.com": whatever ends with it
    ports: frozenset[int] | None  # None: any
    text: str

    def takes(self, host: str, port: int) -> bool:
        if self.ports is not None and port not in self.ports:
            return False
        return self.host in ("*", host) or (self.host[:1] == "." and host.endswith(self.host))

    @property
    def exact(self) -> bool:
        return self.host[:1] not in ("*", ".")


class AllowedHosts:
    """Entries are `host`, `host:port` or `host:*`; without a port the usual two are meant, 80 and 443.

    `*.example.com` is any name below it, `*` any host at all. What only such an entry lets through must also lie at a
    public address: whoever may name a host would otherwise reach this machine's own network by a name for it.
    """

    def __init__(self, entries: tuple[str, ...]) -> None:
        self._entries = tuple(_entry(text) for text in entries)

    def refusal_of(self, url: str) -> str | None:
        """Why this URL may not be called; None: it may."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        return self.refusal(host, parts.port or _USUAL_PORTS.get(parts.scheme, 0))

    def refusal(self, host: str, port: int) -> str | None:
        """The same for a host and its port."""
        taken = self._taken(host, port)
        if not taken:
            allowed = ", ".join(entry.text for entry in self._entries) or "none"
            return f"handler.url: {host}:{port} is not on this worker's list of hosts (allowed: {allowed})"
        address = _address(host)
        if self.exactly(host, port):
            return None
        if address is None and _NUMBERS.fullmatch(host.lower()):
            return f"handler.url: {host} is an address in a form that only some read as one; allowed: four numbers"
        if address is not None and not is_public(address):
            return f"handler.url: {host} is no public address, and this worker's list does not name it"
        return None

    def exactly(self, host: str, port: int) -> bool:
        """Whether an entry names this very host, so that its address is the operator's own affair."""
        return any(entry.exact for entry in self._taken(host, port))

    def _taken(self, host: str, port: int) -> list[_Entry]:
        host = host.lower()
        return [entry for entry in self._entries if entry.takes(host, port)]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet, also where it is wrapped in another."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed in _LOCAL_NAT64 or parsed in _COMPATIBLE:
            return False
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            parsed = inner
    return parsed.is_global and not parsed.is_multicast


def _entry(text: str) -> _Entry:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, ""
    host = host.strip("[]").lower()
    ports = None if port == "*" else frozenset({int(port)} if port else _USUAL_PORTS.values())
    return _Entry(host[1:] if host.startswith("*.") else host, ports, text)


def _address(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None
