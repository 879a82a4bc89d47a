"""The encoder of one machine: the control process has it, and the workers' embedders send it their batches.

`GET /encoder` begins to load it and names it; `POST /vectors` takes a list of texts as msgpack and returns the rows as
little-endian floats of 32 bits.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.embedding.embedder import Embedder
from gateway.embedding.encoder import TextEncoder
from gateway.embedding.model_files import EncoderUnavailable
from gateway.http.asgi import ASGIApp, BodyTooLarge, ClientGone, Receive, Scope, Send, edge_channel, read_body, respond

ENCODER_PATH: Final = "/encoder"
VECTORS_PATH: Final = "/vectors"
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
LOAD_S: Final = 120.0
"""Longest wait of a worker for the control process to load the encoder; then it tries again later."""
ENCODE_S: Final = 10.0
_LOOK_S: Final = 0.2
_texts: Final = msgspec.msgpack.Decoder(list[str])


class EncoderFacts(msgspec.Struct, frozen=True):
    """The name of an encoder, and the length of its vectors."""

    id: str
    dimensions: int


class VectorsApplication:
    """ASGI application of the control process's socket: vectors, and `others` for every other path."""

    def __init__(self, embedder: Embedder, others: ASGIApp) -> None:
        self._embedder = embedder
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope["path"]
        if path == ENCODER_PATH:
            await self._describe(send)
        elif path == VECTORS_PATH:
            await self._encode(scope, receive, send)
        else:
            await self._others(scope, receive, send)

    async def _describe(self, send: Send) -> None:
        embedder = self._embedder
        embedder.start()
        if embedder.encoder_id is None or embedder.dimensions is None:
            await respond(send, 503, [], b"")
            return
        await respond(send, 200, [], msgspec.json.encode(EncoderFacts(embedder.encoder_id, embedder.dimensions)))

    async def _encode(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            texts = _texts.decode(await read_body(receive, MAX_BODY_BYTES, edge_channel(scope)))
        except (BodyTooLarge, msgspec.DecodeError):
            await respond(send, 400, [], b"")
            return
        except ClientGone:
            return
        embedder = self._embedder
        embedder.start()  # this may be a new life of the control process
        found = await asyncio.gather(*(embedder.embed(text) for text in texts))
        if embedder.dimensions is None:
            await respond(send, 503, [], b"")
            return
        rows = np.zeros((len(texts), embedder.dimensions), dtype="<f4")
        for row, vector in zip(rows, found, strict=True):
            if vector is not None:
                row[:] = vector
        await respond(send, 200, [(b"content-type", b"application/octet-stream")], rows.tobytes())


class RemoteEncoder:
    """The control process's encoder as a worker has it; a TextEncoder for one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Prepare it; `path` is the control process's socket."""
        self._path = path
        self._facts = EncoderFacts("", 0)
        self._connection: http.client.HTTPConnection | None = None

    @property
    def id(self) -> str:
        """Name of weights, precision and graph revision."""
        return self._facts.id

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._facts.dimensions

    async def load(self, thread: Executor) -> TextEncoder:
        """Return the encoder once the control process has loaded it; raises EncoderUnavailable."""
        give_up_at = time.monotonic() + LOAD_S
        while time.monotonic() < give_up_at:
            found = await asyncio.get_running_loop().run_in_executor(thread, self._look)
            if found is not None:
                self._facts = found
                return self
            await asyncio.sleep(_LOOK_S)
        raise EncoderUnavailable(f"{self._path}: the control process has no encoder yet")

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return `[len(texts), dimensions]`. Raises EncoderUnavailable when the control process does not answer."""
        try:
            status, body = self._exchange("POST", VECTORS_PATH, msgspec.msgpack.encode(list(texts)))
        except (OSError, http.client.HTTPException) as error:
            raise EncoderUnavailable(f"{self._path}: {error}") from error
        if status != 200:
            raise EncoderUnavailable(f"{self._path}: status {status}")
        return np.frombuffer(body, dtype="<f4").reshape(len(texts), self._facts.dimensions)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _look(self) -> EncoderFacts | None:
        try:
            status, body = self._exchange("GET", ENCODER_PATH)
        except (OSError, http.client.HTTPException):
            return None
        return msgspec.json.decode(body, type=EncoderFacts) if status == 200 else None

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request; one on a connection that the other end has closed meanwhile is sent once more."""
        is_used = self._connection is not None
        try:
            return self._send(method, path, body)
        except (OSError, http.client.HTTPException):
            if not is_used:
                raise
            return self._send(method, path, body)

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _UnixConnection(self._path)
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self.close()
            raise


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ENCODE_S)
        self._path = path

    def connect(self) -> None:
        """Connect; raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ENCODE_S)
        self.sock.connect(str(self._path))
