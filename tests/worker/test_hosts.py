"""The list of hosts that a worker may call."""

from __future__ import annotations

import pytest

from fencepost.worker.guard.hosts import AllowedHosts, is_public


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("api.example.com", "http://api.example.com/x", True),
        ("api.example.com", "https://API.example.com", True),
        ("API.example.com", "https://api.example.com", True),
        ("api.example.com", "https://api.example.com:8443", False),
        ("api.example.com:8443", "https://api.example.com:8443", True),
        ("api.example.com:8443", "https://api.example.com", False),
        ("api.example.com:*", "http://api.example.com:81", True),
        ("api.example.com", "https://evilapi.example.com", False),
        ("*.example.com", "https://api.example.com", True),
        ("*.example.com", "https://a.b.example.com", True),
        ("*.example.com", "https://example.com", False),
        ("*.example.com", "https://evilexample.com", False),
        ("*", "https://anything.test", True),
        ("*", "https://anything.test:81", False),
        ("*", "https://8.8.8.8", True),
        ("*", "https://169.254.169.254", False),
        ("*", "https://10.0.0.1", False),
        ("*", "https://[::1]", False),
        ("*", "https://[::ffff:127.0.0.1]", False),
        ("*", "https://[64:ff9b:1::a00:1]", False),
        ("*", "https://[::127.0.0.1]", False),
        ("*", "https://2130706433", False),
        ("*", "https://127.1", False),
        ("*", "https://127.0.0.1.", False),
        ("*", "https://0177.0.0.1", False),
        ("*", "https://0x7F000001", False),
        ("*", "https://0xdeadbeef.example.com", True),
        ("*", "https://1.example.com", True),
        ("127.1", "https://127.1", True),
        ("127.0.0.1:80", "http://127.0.0.1", True),
        ("[::1]:8080", "http://[::1]:8080/x", True),
        ("[::1]", "http://[::1]:8080/x", False),
        ("[::1]:*", "http://[::1]:8080/x", True),
    ],
)
def test_an_entry_lets_its_host_and_port_through_and_nothing_else(entry: str, url: str, allowed: bool) -> None:
    assert (AllowedHosts((entry,)).refusal_of(url) is None) is allowed


def test_a_refusal_says_what_is_allowed() -> None:
    refusal = AllowedHosts(("a.test", "b.test:81")).refusal_of("https://c.test")
    assert refusal == "handler.url: c.test:443 is not on this worker's list of hosts (allowed: a.test, b.test:81)"
    assert "(allowed: none)" in (AllowedHosts(()).refusal_of("https://c.test") or "")


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
     "ff02::1", "no address"],
)  # fmt: skip
def test_addresses_that_are_not_of_the_internet(address: str) -> None:
    assert not is_public(address)
