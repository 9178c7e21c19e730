"""What `[kafka.client]` says of TLS and passwords, for the client library that faust uses."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import faust

from fencepost.settings import SettingsError

_KNOWN = {
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location",
    "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def credentials_of(client: Mapping[str, str]) -> Any:
    """faust's credentials; None for a plain connection. Raises SettingsError for what it cannot do."""
    for name in client:
        if name.startswith(("sasl.", "ssl.")) and name not in _KNOWN:
            raise SettingsError(
                f"kafka.client.{name} is not known to views and rules; allowed: {', '.join(sorted(_KNOWN))}"
            )
    protocol = client.get("security.protocol", "plaintext").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise SettingsError(
            f"kafka.client.security.protocol is {protocol!r}; allowed: plaintext, ssl, sasl_plaintext, sasl_ssl"
        )
    context = _context(client) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return None if context is None else faust.SSLCredentials(context)
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms", "PLAIN")).upper()
    if mechanism not in _MECHANISMS:
        raise SettingsError(
            f"kafka.client.sasl.mechanism is {mechanism!r}; allowed for views and rules: {', '.join(_MECHANISMS)}"
        )
    return faust.SASLCredentials(
        username=client.get("sasl.username"),
        password=client.get("sasl.password"),
        ssl_context=context,
        mechanism=mechanism,
    )


def _context(client: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=client.get("ssl.ca.location"))
        if certificate := client.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, client.get("ssl.key.location"), client.get("ssl.key.password"))
    except OSError as error:
        raise SettingsError(f"kafka.client.ssl: {error}") from error
    if client.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    return context
