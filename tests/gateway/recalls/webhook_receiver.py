"""A real receiver of webhooks on loopback."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Webhook:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class WebhookReceiver:
    """Answers `status` to every request, and stores those requests."""

    def __init__(self) -> None:
        self.status = "204 No Content"
        self.received: list[Webhook] = []
        self.has_news = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hooks/recalls"

    @property
    def taken(self) -> list[str]:
        """Request ids in the notices that it accepted and refused so far."""
        return [webhook.event["data"]["request_id"] for webhook in self.received]

    async def until(self, count: int) -> None:
        """Wait for so many requests."""
        async with asyncio.timeout(60.0):
            while len(self.received) < count:
                self.has_news.clear()
                await self.has_news.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Webhook(head[0].split(" ")[1], headers, body))
            lines = (f"HTTP/1.1 {self.status}", f"location: {self.url}/elsewhere", "content-length: 0", "", "")
            writer.write("\r\n".join(lines).encode())
            await writer.drain()
            self.has_news.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a connection made ahead of need, or closed early
        finally:
            writer.close()
