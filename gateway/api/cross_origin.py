"""CrossOrigin: requests of web pages from origins that the operator lists (CORS, of the Fetch standard)."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from starlette.middleware.cors import CORSMiddleware

from gateway.http.asgi import ASGIApp, Receive, Scope, Send

_METHODS: Final = ("DELETE", "GET", "HEAD", "POST")


class CrossOrigin:
    """ASGI application that lets pages of some origins read an application's responses.

    Credentials are bearer keys, so no cookies are allowed. Requests without `origin` reach the application unchanged.
    """

    __slots__ = ("_app", "_cors")

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        """Wrap an application.

        Args:
            app: The application.
            origins: Origins such as `https://chat.example.com`, or `*` for all.
        """
        self._app = app
        self._cors = CORSMiddleware(
            self._without_channel, origins, _METHODS, allow_headers=("*",), expose_headers=("*",)
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if any(name == b"origin" for name, _ in scope["headers"]):
            return self._cors(scope, receive, send)
        return self._app(scope, receive, send)

    async def _without_channel(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve through plain ASGI: the edge's channel writes whole responses past the headers added here."""
        await self._app({**scope, "extensions": {}}, receive, send)
