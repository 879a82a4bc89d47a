"""GETs to a local process, for `penstock up`, `penstock doctor` and `penstock wait`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from gateway.http.certificate import CertificateError, pinning_context

TIMEOUT_S = 2.0
ANSWERED: Final = "status 200"
_PAUSE_S: Final = 0.5


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


def can_be_probed(text: str) -> bool:
    """Return whether `wait_until_up` can send requests there."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and 0 < (url.port or 80) < 65536


async def wait_until_up(
    url: str,
    limit_s: float,
    *,
    tls_cert: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause_s: float = _PAUSE_S,
) -> str:
    """Send GET `url` until the status is 200, and return what came last: ANSWERED unless the time is over.

    Args:
        url: An http or https URL.
        limit_s: Time after which no further request is sent, in seconds; 0 sends one.
        tls_cert: Certificate that the server must have; None for one that this machine trusts.
        clock: Monotonic clock in seconds.
        pause_s: Pause between two requests, in seconds.

    Raises:
        CertificateError: The file holds no certificate.
    """
    ends_at = clock() + limit_s
    verify = True if tls_cert is None else pinning_context(tls_cert)
    async with httpx.AsyncClient(verify=verify, timeout=TIMEOUT_S, trust_env=False) as client:
        while True:
            try:
                last = f"status {(await client.get(url)).status_code}"
            except httpx.HTTPError as error:
                last = str(error) or "no answer"
            if last == ANSWERED or clock() >= ends_at:
                return last
            await asyncio.sleep(pause_s)


def base_url_of(address: str, *, is_tls: bool) -> str:
    """Return the URL for clients on this machine of an address to listen on."""
    return f"{'https' if is_tls else 'http'}://{reachable(address)}"


def reachable(address: str) -> str:
    """Return an address to connect to for one to listen on: every interface includes this machine's own."""
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": f"127.0.0.1:{port}", "[::]": f"[::1]:{port}"}.get(host, address)
