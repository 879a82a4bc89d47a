"""CertificateWatch: the TLS certificates of the listeners, and their files' changes while they serve."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.http.certificate import CertificateError, ServerCertificate
from gateway.telemetry.logs.log import LogWriter

POLL_S: Final = 1.0


def read_certificates(config: GatewayConfig) -> dict[str, ServerCertificate]:
    """Return the certificate of each listener with TLS, by the listener's name. Raises ConfigError."""
    found = {}
    for name, files in (("public", config.public.tls_files), ("admin", config.admin.tls_files)):
        try:
            if files is not None:
                found[name] = ServerCertificate(*files)
        except CertificateError as error:
            raise ConfigError(f"{name}.{error}") from error
    return found


class CertificateWatch:
    """Takes changed files into force; unusable ones are logged once and change nothing."""

    def __init__(
        self, certificates: Mapping[str, ServerCertificate], log: LogWriter, *, poll_s: float = POLL_S
    ) -> None:
        self._certificates = certificates
        self._log = log
        self._poll_s = poll_s

    async def run(self) -> None:
        """Look at the files periodically until cancelled."""
        while self._certificates:
            await asyncio.sleep(self._poll_s)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Look at the files now."""
        for name, certificate in self._certificates.items():
            try:
                if certificate.reload():
                    self._log.event("certificate_in_force", listener=name)
            except CertificateError as error:
                self._log.event(
                    "certificate_refused", level="error", listener=name, file=str(error.path), error=error.problem
                )
