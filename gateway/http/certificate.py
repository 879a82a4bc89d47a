"""ServerCertificate: the certificate and key of a listener, taken again when their files change."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from gateway.util.regular_file import read_regular_file

_MAX_FILE_BYTES: Final = 1024 * 1024

_FileState = tuple[int, int, int] | None
"""Inode, size and time of change; None for a file that cannot be found."""


class CertificateError(ValueError):
    """A certificate or key cannot be used; the message starts with the setting and names the file."""

    def __init__(self, setting: str, path: Path, problem: str) -> None:
        super().__init__(f"{setting}: {path} {problem}")
        self.path = path
        self.problem = problem


class ServerCertificate:
    """TLS of one listener. Connections that are open keep the certificate with which they began."""

    __slots__ = ("_cert_file", "_current", "_key_file", "_states", "context")

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Read the files. Raises CertificateError."""
        self._cert_file = cert_file
        self._key_file = key_file
        self._states = self._look()
        self._current = self.context = _server_context(cert_file, key_file)
        """Context for the listener; it hands each new connection to the current one."""
        self.context.sni_callback = self._use_current

    def reload(self) -> bool:
        """Take the files if they have changed, and return whether they did; a failure leaves the old ones in force.

        Raises:
            CertificateError: The files are unusable; raised once for each state of the files.
        """
        states = self._look()
        if states == self._states:
            return False
        self._states = states
        self._current = _server_context(self._cert_file, self._key_file)
        return True

    def _use_current(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Give a connection the current certificate; OpenSSL calls this for every client, with or without a name."""
        if self._current is not context:
            connection.context = self._current

    def _look(self) -> tuple[_FileState, _FileState]:
        return _state_of(self._cert_file), _state_of(self._key_file)


def pinning_context(cert_file: Path) -> ssl.SSLContext:
    """Return a client's context that accepts only servers with this certificate, whatever name they are called by.

    Raises:
        CertificateError: The file has no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # this machine's own listener is called by its address
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _read("tls_cert", cert_file)
    try:
        context.load_verify_locations(cert_file)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError("tls_cert", cert_file, f"has no PEM certificate ({_reason(error)})") from error
    return context


def _server_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if b"-----BEGIN CERTIFICATE-----" not in _read("tls_cert", cert_file):
        raise CertificateError("tls_cert", cert_file, "has no PEM certificate")
    if b"PRIVATE KEY-----" not in _read("tls_key", key_file):
        raise CertificateError("tls_key", key_file, "has no PEM private key")

    def refuse_password() -> str:
        raise CertificateError("tls_key", key_file, "is encrypted; store it without a passphrase, for this user only")

    try:
        context.load_cert_chain(cert_file, key_file, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"is not the key of the first certificate in {cert_file}"
            raise CertificateError("tls_key", key_file, problem) from error
        raise CertificateError("tls_cert", cert_file, f"cannot be used with {key_file} ({_reason(error)})") from error
    except OSError as error:
        raise CertificateError("tls_cert", cert_file, f"cannot be read ({_reason(error)})") from error
    return context


def _read(setting: str, path: Path) -> bytes:
    try:
        return read_regular_file(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise CertificateError(setting, path, f"cannot be read ({error.strerror or error})") from error


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


def _state_of(path: Path) -> _FileState:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
