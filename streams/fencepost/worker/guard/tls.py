"""What HTTPS requests of this worker trust, and show of themselves."""

from __future__ import annotations

import ssl

from fencepost.worker.guard.settings import CallSettings


def tls_context(settings: CallSettings) -> ssl.SSLContext:
    """Raises ValueError, naming the setting, where a file is missing or is not what it should be."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"call.ca_file: {settings.ca_file!r} cannot be used: {error}") from error
    if settings.cert_file is None:
        if settings.key_file is not None:
            raise ValueError("call.key_file: given without call.cert_file")
        return context
    try:
        context.load_cert_chain(settings.cert_file, settings.key_file, password=_none)
    except (OSError, ValueError) as error:
        where = settings.cert_file if settings.key_file is None else f"{settings.cert_file}, {settings.key_file}"
        raise ValueError(f"call.cert_file, call.key_file: {where} cannot be used: {error}") from error
    return context


def _none() -> str:
    """Instead of a question on the terminal."""
    raise ValueError("the key is encrypted; one without a password is needed")
