"""Relay of one request to an engine: the answer streams, and a client that leaves closes the connection behind it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Final

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

logger = logging.getLogger(__name__)

_NOT_RELAYED: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"),
        *("transfer-encoding", "content-length", "host"),
    }
)
"""Headers of one connection (RFC 9110, 7.6.1), and those that the client library sets."""
REPLICA_HEADER: Final = "x-penstock-replica"
"""Response header with the replica and its node."""
_NO_SUCH_PATH: Final = frozenset({"/engine/load", "/metrics"})
"""Figures of one engine, which a proxy in front of several would give of a random one."""


def failure(status: int, code: str, message: str) -> Response:
    """Return an error in the envelope of the engine."""
    return JSONResponse({"error": _error(code, message)}, status)


async def relay(client: httpx.AsyncClient, request: Request, replica: str = "") -> Response:
    """Send a request to the engine and return its answer, which streams and names the replica.

    Cancellation closes the connection, and the engine then ends the sequence.
    """
    if request.url.path in _NO_SUCH_PATH:
        return failure(404, "not_found", "This path belongs to one engine; behind Ray Serve there are several.")
    headers = [(name, value) for name, value in request.headers.items() if name not in _NOT_RELAYED]
    sent = client.build_request(
        request.method, request.url.path, params=request.url.query, headers=headers, content=await request.body()
    )
    try:
        answer = await client.send(sent, stream=True)
    except httpx.HTTPError as error:
        return failure(503, "engine_unavailable", f"The engine does not answer ({type(error).__name__}).")
    kept = {name: value for name, value in answer.headers.items() if name not in _NOT_RELAYED}
    if replica:
        kept[REPLICA_HEADER] = replica
    is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
    return StreamingResponse(_parts(answer, is_stream=is_stream), answer.status_code, kept)


async def _parts(answer: httpx.Response, *, is_stream: bool) -> AsyncIterator[bytes]:
    """Yield the body; an engine that dies within it ends a stream with an error event and without `[DONE]`.

    Raises:
        httpx.HTTPError: The body of an answer that is no stream breaks off; its length then shows it.
    """
    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError as error:
        logger.warning("an engine broke off its answer: %s", error)
        if not is_stream:
            raise
        event = json.dumps({"error": _error("engine_died", "The engine ended while it answered.")})
        yield f"data: {event}\n\n".encode()
    finally:
        await answer.aclose()


def _error(code: str, message: str) -> dict[str, str | None]:
    return {"message": message, "type": "server_error", "param": None, "code": code}
