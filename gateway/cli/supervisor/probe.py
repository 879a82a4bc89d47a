"""One GET to a local process, for `penstock up` and `penstock doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from gateway.http.certificate import CertificateError, pinning_context

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """A status and the JSON that came with it; None when the body was none."""

    status: int
    body: Any


async def get(
    address: str, path: str, *, timeout_s: float = TIMEOUT_S, tls_cert: Path | None = None
) -> ProbeResult | None:
    """Send GET `path` to `host:port` or `unix:/path`; None when no answer comes in time.

    With `tls_cert`, the address speaks TLS with the certificate in that file.
    """
    is_unix = address.startswith("unix:")
    try:
        verify = pinning_context(tls_cert) if tls_cert is not None else True
        transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:") if is_unix else None, verify=verify)
        base_url = "http://penstock" if is_unix else base_url_of(address, is_tls=tls_cert is not None)
        async with httpx.AsyncClient(transport=transport, base_url=base_url, timeout=timeout_s) as client:
            response = await client.get(path)
    except (httpx.TransportError, CertificateError):
        return None
    try:
        return ProbeResult(status=response.status_code, body=msgspec.json.decode(response.content))
    except msgspec.DecodeError:
        return ProbeResult(status=response.status_code, body=None)


def base_url_of(address: str, *, is_tls: bool) -> str:
    """Return the URL for clients on this machine of an address to listen on."""
    return f"{'https' if is_tls else 'http'}://{reachable(address)}"


def reachable(address: str) -> str:
    """Return an address to connect to for one to listen on: every interface includes this machine's own."""
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": f"127.0.0.1:{port}", "[::]": f"[::1]:{port}"}.get(host, address)
