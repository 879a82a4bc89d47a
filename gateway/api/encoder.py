"""EncoderApplication: the gateway's own encoder behind the API of a deployment, on connections within the process.

The gateway talks to it as to any other deployment, so that permits, records, the cache and health hold for it, too.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.api.application import nothing_at
from gateway.chat.strict_json import is_long
from gateway.dialects.embeddings.dialect import embeddings_parser
from gateway.dialects.embeddings.schema import Embedding, EmbeddingFields, EmbeddingList, EmbeddingUsage
from gateway.embedding.served_encoder import ServedEncoder, TextVectors
from gateway.errors import GatewayError, InvalidRequest, error_body, error_headers
from gateway.http.asgi import (
    BodyTooLarge,
    ClientGone,
    Header,
    Receive,
    Scope,
    Send,
    edge_channel,
    read_body,
    respond,
    until_gone,
)

EMBEDDINGS_PATH: Final = "/v1/embeddings"
MAX_BODY_BYTES: Final = 1024 * 1024 * 1024
"""Bound on a body; the public listener's own limit is below it."""
_LONG_NUMBERS: Final = 16 * 1024
"""Numbers of an answer whose encoding takes about a millisecond."""
_DECIMALS: Final = 9
_JSON: Final[Header] = (b"content-type", b"application/json")
_FORMATS: Final = frozenset({"base64", "float"})


class EncoderApplication:
    """ASGI application with `POST /v1/embeddings` and `GET /readyz`."""

    def __init__(self, encoder: ServedEncoder) -> None:
        self._encoder = encoder
        self._parser = embeddings_parser()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a client that leaves ends its work."""
        try:
            async with until_gone(scope, receive) as client:
                status, headers, body = await self._answer(scope, client.receive)
                await respond(send, status, headers, body)
        except ClientGone:
            return

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, list[Header], bytes]:
        try:
            if scope["path"] == "/readyz":
                return self._readiness()
            if scope["path"] != EMBEDDINGS_PATH or scope["method"] != "POST":
                raise nothing_at(scope["path"])
            body = await read_body(receive, MAX_BODY_BYTES, edge_channel(scope))
            return 200, [_JSON], await self._embed(body)
        except BodyTooLarge as error:
            failure: GatewayError = InvalidRequest(str(error))
        except GatewayError as error:
            failure = error
        return failure.status, error_headers(failure), error_body(failure)

    def _readiness(self) -> tuple[int, list[Header], bytes]:
        state = self._encoder.state
        return 200 if state == "ready" else 503, [_JSON], msgspec.json.encode({"state": state})

    async def _embed(self, body: bytes) -> bytes:
        parsed = await asyncio.to_thread(self._parser.read, body) if is_long(body) else self._parser.read(body)
        fields = parsed.fields
        encoding = fields.encoding_format or "float"
        if encoding not in _FORMATS:
            raise InvalidRequest(
                f"`encoding_format` must be float or base64; got {encoding[:32]!r}.", param="encoding_format"
            )
        found = await self._encoder.vectors(_inputs(fields), fields.dimensions, fields.model)
        if found.vectors.size > _LONG_NUMBERS:
            return await asyncio.to_thread(_encoded, found, fields.model, encoding)
        return _encoded(found, fields.model, encoding)


def _inputs(fields: EmbeddingFields) -> list[Any]:
    """Return the inputs as a list of texts, or of lists of token ids."""
    value = fields.input
    if isinstance(value, str):
        return [value]
    return [value] if isinstance(value[0], int) else list(value)


def _encoded(found: TextVectors, model: str, encoding: str) -> bytes:
    values: list[Any] = _as_base64(found.vectors) if encoding == "base64" else _as_numbers(found.vectors)
    data = [Embedding(index, value) for index, value in enumerate(values)]
    usage = EmbeddingUsage(found.num_tokens, found.num_tokens)
    return msgspec.json.encode(EmbeddingList(data, model, usage))


def _as_base64(vectors: NDArray[np.float32]) -> list[str]:
    return [base64.b64encode(row.astype("<f4", copy=False).tobytes()).decode("ascii") for row in vectors]


def _as_numbers(vectors: NDArray[np.float32]) -> list[list[float]]:
    """Return the numbers with as many decimals as a float of 32 bits below 1 can tell apart."""
    rounded: list[list[float]] = np.round(vectors.astype(np.float64), _DECIMALS).tolist()
    return rounded
