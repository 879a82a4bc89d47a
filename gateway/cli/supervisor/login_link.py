"""The login link that `penstock up` prints: it signs a browser on this machine in, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx

from gateway.access.local_token import read_token
from gateway.cli.supervisor.held_address import HeldAddress
from gateway.cli.supervisor.probe import TIMEOUT_S, base_url_of
from gateway.http.certificate import CertificateError, pinning_context

CREATE_PATH: Final = "/admin/api/login/links"


async def login_link(
    admin: HeldAddress, token_file: Path, *, transport: httpx.AsyncBaseTransport | None = None
) -> str | None:
    """Return a new login link of the gateway whose admin listener is `admin`; None where it makes none.

    A Unix socket has no link, since browsers cannot open one, nor has a listener that serves other machines.
    """
    if admin.shown.startswith("unix:"):
        return None
    base_url = base_url_of(admin.shown, is_tls=admin.tls_cert is not None)
    try:
        headers = {"authorization": f"Bearer {read_token(token_file)}"}
        verify = True if admin.tls_cert is None else pinning_context(admin.tls_cert)
        async with httpx.AsyncClient(transport=transport, verify=verify, timeout=TIMEOUT_S, trust_env=False) as client:
            response = await client.post(base_url + CREATE_PATH, json={}, headers=headers)
            made: Any = response.json()
    except (OSError, ValueError, httpx.HTTPError, CertificateError):
        return None
    return f"{base_url}{made['path']}" if response.status_code == 201 else None


async def login_line(
    admin: HeldAddress, token_file: Path, *, transport: httpx.AsyncBaseTransport | None = None
) -> str | None:
    """Return the line to print with a new login link; None where there is none."""
    link = await login_link(admin, token_file, transport=transport)
    return None if link is None else f"sign in: {link} (works once, within 10 minutes; penstock admin link makes more)"
