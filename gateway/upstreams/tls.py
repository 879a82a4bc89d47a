"""TLS for upstreams; the server is always verified, without an option to disable that."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.util.regular_file import read_regular_file


class TlsConfigError(ValueError):
    """Error for an unusable CA file, or a context without verification."""


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Return a context that checks chain and name, TLS 1.2 or newer, with the system's CAs or only those in `ca_file`.

    Raises:
        TlsConfigError: The file has no certificate.
    """
    try:
        if ca_file is not None:
            read_regular_file(ca_file, 1)  # OpenSSL would wait for a pipe's writer, and read a device without end
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise TlsConfigError(f"{ca_file}: not a readable PEM file of CA certificates ({error})") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def require_verification(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context if it verifies servers; raises TlsConfigError otherwise."""
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise TlsConfigError("upstream TLS must verify the certificate and the host name")
    return context
