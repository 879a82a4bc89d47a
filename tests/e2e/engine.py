"""The bundled engines behind a running product, on their own sockets."""

from __future__ import annotations

import httpx

from tests.e2e.conftest import Stack


def engine_client(stack: Stack, name: str = "small") -> httpx.Client:
    """A client of one engine; close it."""
    socket = stack.log.parent / "run" / f"{name}.sock"
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://engine", timeout=httpx.Timeout(120.0)
    )
