"""The login link that `penstock up` prints: it signs a browser on this machine in, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx

from gateway.access.local_token import read_token
from gateway.cli.supervisor.probe import TIMEOUT_S, base_url_of
from gateway.http.certificate import CertificateError, pinning_context

CREATE_PATH: Final = "/admin/api/login/links"


async def login_link(
    admin: str,
    token_file: Path,
    *,
    tls_cert: Path | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> str | None:
    """Return a new login link of the gateway whose admin listener is `admin`; None where it makes none.

    A Unix socket has no link, since browsers cannot open one, nor has a listener that serves other machines. With
    `tls_cert`, the listener speaks TLS with the certificate in that file.
    """
    if admin.startswith("unix:"):
        return None
    base_url = base_url_of(admin, is_tls=tls_cert is not None)
    try:
        verify = pinning_context(tls_cert) if tls_cert is not None else True
        headers = {"authorization": f"Bearer {read_token(token_file)}"}
        async with httpx.AsyncClient(transport=transport, verify=verify, timeout=TIMEOUT_S, trust_env=False) as client:
            response = await client.post(base_url + CREATE_PATH, json={}, headers=headers)
            made: Any = response.json()
    except (OSError, ValueError, httpx.HTTPError, CertificateError):
        return None
    return f"{base_url}{made['path']}" if response.status_code == 201 else None


async def login_line(
    admin: str,
    token_file: Path,
    *,
    tls_cert: Path | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> str | None:
    """Return the line to print with a new login link; None where there is none."""
    link = await login_link(admin, token_file, tls_cert=tls_cert, transport=transport)
    return None if link is None else f"sign in: {link} (works once, within 10 minutes; penstock admin link makes more)"
