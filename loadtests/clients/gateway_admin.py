"""A gateway's admin listener, as benches use it: its policy, applied, awaited and planned."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from loadtests.clients.http_client import LoadConnection, request_bytes
from loadtests.harness.stack import Server

_POLICY: Final = "/admin/api/policy"


class GatewayAdmin:
    """Speaks with the token that the gateway wrote into its folder. Every call raises SystemExit when it is refused."""

    def __init__(self, gateway: Server, folder: Path) -> None:
        token = (folder / "admin.token").read_text().strip()
        self._headers = (("authorization", f"Bearer {token}"),)
        self._address = gateway.admin

    async def apply(self, document: str) -> str:
        """Make it the newest revision; its id."""
        body = json.dumps({"document": document, "reason": "a bench"}).encode()
        request = request_bytes("PUT", _POLICY, body, (*self._headers, ("if-match", "*")))
        return _revision(await self._exchange(request))

    async def until(self, revision: str) -> None:
        """Until it is in force here."""
        request = request_bytes("GET", _POLICY, headers=self._headers)
        while _revision(await self._exchange(request)) != revision:
            await asyncio.sleep(0.002)

    async def plan(self, document: str) -> dict[str, Any]:
        """What it would change, by what was recorded."""
        body = json.dumps({"document": document}).encode()
        found: dict[str, Any] = await self._exchange(request_bytes("POST", f"{_POLICY}/plan", body, self._headers))
        return found

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        connection = await LoadConnection.open(self._address, keep_body=True)
        try:
            exchange = await connection.exchange(request)
            if not exchange.is_ok:
                raise SystemExit(f"{exchange.status} {exchange.error}: {connection.scanner.content[:300]!r}")
            found: dict[str, Any] = json.loads(connection.scanner.content)
            return found
        finally:
            connection.close()


def _revision(answer: dict[str, Any]) -> str:
    return str(answer["revision"]["revision"])
