"""Bounded reading of JSON answers from control planes."""

from __future__ import annotations

from typing import Final, TypeVar

import httpx
import msgspec

from gateway.discovery.source import SourceError

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024

T = TypeVar("T")


async def fetch_json(client: httpx.AsyncClient, request: httpx.Request, kind: type[T]) -> T:
    """Return the decoded answer with status 200.

    Raises:
        SourceError: No answer came, or another one.
        UnexpectedStatus: The answer has another status.
    """
    try:
        response = await client.send(request, stream=True)
        try:
            body = await _body(response)
        finally:
            await response.aclose()
    except httpx.HTTPError as error:
        raise SourceError(f"{request.url.host}: {str(error) or type(error).__name__}") from error
    if response.status_code != 200:
        raise UnexpectedStatus(request.url.host, response.status_code)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise SourceError(f"{request.url.host}: {error}") from error


class UnexpectedStatus(SourceError):
    """An answer with a status other than 200."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(f"{host}: status {status}{_REMEDIES.get(status, '')}")
        self.status = status


_REMEDIES: Final = {
    401: "; the token is missing or not valid",
    403: "; the token's account may not read this",
    404: "; there is no such API",
}


async def _body(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise SourceError(f"{response.url.host}: the answer is larger than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)
