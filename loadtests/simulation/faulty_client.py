"""A client that leaves, stalls and comes back at random moments, and the faults of what it received."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from loadtests.simulation.faulty_upstream import CANARY, answer_tokens
from loadtests.simulation.virtual_network import VirtualTransport

Ending = Literal["waits", "leaves", "resets", "stalls"]
Surface = Literal["chat", "messages", "responses"]

_PATHS: Final[dict[Surface, str]] = {
    "chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"
}  # fmt: skip
_ENDINGS: Final[dict[Ending, float]] = {"waits": 70, "leaves": 12, "resets": 12, "stalls": 6}
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3})")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_TOKEN: Final = re.compile(rb"canary-[a-z]+-[0-9]+\.([0-9]+) ")
_FINE: Final = frozenset({200, 400, 401, 404, 408, 429, 502, 503, 504})
_PATIENCE_S: Final = 8.0


@dataclass(slots=True, eq=False)
class SentRequest:
    """One request of a client, and what came of it."""

    tenant: str
    canary: str
    surface: Surface
    is_stream: bool
    ending: Ending
    leaves_after_s: float
    data: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    was_reset: bool = False

    def encoded(self, key: str) -> bytes:
        """The request's bytes."""
        text = f"say {self.canary} please"
        fields: dict[str, object] = {"model": "auto", "stream": self.is_stream}
        if self.surface == "responses":
            fields |= {"input": text, "max_output_tokens": 40}
        else:
            fields |= {"messages": [{"role": "user", "content": text}], "max_tokens": 40, "temperature": 0}
        body = json.dumps(fields).encode()
        head = (
            f"POST {_PATHS[self.surface]} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    @property
    def status(self) -> int:
        """The status line's; 0 without one."""
        found = _STATUS.match(self.data)
        return int(found[1]) if found else 0

    def _head_and_rest(self) -> tuple[bytes, bytes]:
        head, _, rest = bytes(self.data).partition(b"\r\n\r\n")
        return head, rest

    @property
    def is_whole(self) -> bool:
        """Whether the framing states that all of the response is here."""
        head, rest = self._head_and_rest()
        if not rest and b"\r\n\r\n" not in self.data:
            return False
        found = _LENGTH.search(head)
        return len(rest) >= int(found[1]) if found else rest.endswith(b"0\r\n\r\n")

    def problems(self) -> Iterator[str]:
        """Everything that no client may ever see."""
        strangers = {found[0] for found in CANARY.finditer(self.data) if not self._is_own(found)}
        if strangers:
            yield f"{self.canary} received bytes of {sorted(strangers)}"
        if self.status and self.status not in _FINE:
            yield f"{self.canary} was answered {self.status}: {bytes(self.data[-300:])!r}"
        if self.status == 200 and self.surface == "chat":
            yield from self._text_problems()

    def _is_own(self, found: re.Match[bytes]) -> bool:
        """Whether a mark is this request's, or what was received of it where the data or a chunk ends."""
        own, data = self.canary.encode(), self.data
        is_cut = found.end() == len(data) or data.startswith(b"\r\n", found.end())
        return found[0] == own or (is_cut and own.startswith(found[0]))

    def _text_problems(self) -> Iterator[str]:
        expected = len(answer_tokens(self.canary))
        numbers = [int(found) for found in _TOKEN.findall(_without_framing(bytes(self.data)))]
        if numbers != list(range(len(numbers))) or len(numbers) > expected:
            yield f"{self.canary}: tokens {numbers} of {expected} are not in order once each"
        states_end = b"data: [DONE]" in self.data if self.is_stream else self.is_whole
        has_error = b'"error"' in self.data
        if states_end and has_error:
            yield f"{self.canary}: an error, and then an end as if nothing had been"
        is_flagged = b'"finish_reason":null' in self.data.replace(b": ", b":") and not self.is_stream
        if states_end and len(numbers) < expected and not has_error and not is_flagged:
            yield f"{self.canary}: {len(numbers)} of {expected} tokens, stated to be whole"
        if b"x-penstock-cache: hit" in self.data and states_end and len(numbers) < expected:
            yield f"{self.canary}: a cached response has {len(numbers)} of {expected} tokens"


def _without_framing(data: bytes) -> bytes:
    """A response's body, with whatever chunk sizes may stand inside a token taken out."""
    head, _, rest = data.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not re.fullmatch(rb"[0-9a-f]+", size):
            break
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


def draw_request(rng: random.Random, tenant: str, number: int) -> SentRequest:
    """A request of a tenant; now and then one of its earlier prompts again, which the cache may answer."""
    prompt = rng.randrange(number) if number and rng.random() < 0.3 else number
    return SentRequest(
        tenant=tenant,
        canary=f"canary-{tenant}-{prompt}",
        surface=rng.choices(("chat", "messages", "responses"), (80, 10, 10))[0],
        is_stream=rng.random() < 0.6,
        ending=rng.choices(list(_ENDINGS), list(_ENDINGS.values()))[0],
        leaves_after_s=rng.choice((0.0, 0.001, 0.02, 0.4, 3.0)) * rng.random() * 2,
    )


class FaultyClient(asyncio.Protocol):
    """One connection, with one request after the other for as long as it lasts."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._sent: SentRequest | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(VirtualTransport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._sent is not None:
            self._sent.data += data
            if self._sent.is_whole:
                self._end()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._sent is not None:
            self._sent.was_reset = exc is not None
            self._end()

    async def send(self, sent: SentRequest, key: str) -> None:
        """Send a request; return when its answer is over or its client has had enough."""
        self._sent = sent
        self._changed.clear()
        self.transport.write(sent.encoded(key))
        limit_s = _PATIENCE_S
        if sent.ending in ("leaves", "resets"):
            limit_s = sent.leaves_after_s
        elif sent.ending == "stalls":
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(sent.leaves_after_s * 10, self.transport.resume_reading)
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            self._leave(sent)
        self._sent = None

    def _leave(self, sent: SentRequest) -> None:
        if sent.ending == "resets":
            self.transport.abort()
        else:
            self.transport.close()

    def _end(self) -> None:
        assert self._sent is not None
        self._sent.is_over = True
        self._changed.set()
