"""An upstream that fails in every way the wire allows, chosen at random, and the record of all that it was sent."""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast

from loadtests.simulation.virtual_network import VirtualTransport

CANARY: Final = re.compile(rb"canary-[a-z]+-[0-9]+")
"""The mark of one prompt of one tenant; every token of its answer carries it."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_STREAM: Final = re.compile(rb'"stream": *true')
_HEAD_END: Final = b"\r\n\r\n"

_PROBED: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

Fault = Literal[
    "none",
    "slow",
    "error",
    "busy",
    "reset_first",
    "reset_head",
    "reset_midway",
    "stall_first",
    "stall_midway",
    "no_finish",
    "no_done",
    "bad_framing",
    "short_length",
    "close_behind",
    "extra_bytes",
]
_WEIGHTS: Final[dict[Fault, float]] = {
    "none": 50,
    "slow": 6,
    "error": 6,
    "busy": 4,
    "reset_first": 4,
    "reset_head": 3,
    "reset_midway": 5,
    "stall_first": 3,
    "stall_midway": 4,
    "no_finish": 3,
    "no_done": 3,
    "bad_framing": 3,
    "short_length": 2,
    "close_behind": 5,
    "extra_bytes": 3,
}

Step = tuple[float, bytes | Literal["reset", "close", "stall", "over"]]
"""Seconds to wait, then bytes to write or what happens to the connection."""


def answer_tokens(canary: str) -> list[str]:
    """The answer to a prompt: the same from every upstream, so that a cached one can be compared."""
    return [f"{canary}.{number} " for number in range(2 + zlib.crc32(canary.encode()) % 6)]


@dataclass(slots=True, eq=False)
class Received:
    """One request at an upstream."""

    canary: str
    fault: Fault
    began_at: float
    transport: VirtualTransport
    """The upstream's end; its `peer` is the gateway's."""
    is_over: bool = False
    """Whether the script has done all it meant to, or bytes of an earlier one came in its place."""


class FaultyUpstream:
    """One deployment's server; `received` has every request in order."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.received: list[Received] = []
        self._rng = rng

    def __call__(self) -> UpstreamConnection:
        """The server's side of a new connection."""
        return UpstreamConnection(self)

    def draw(self) -> Fault:
        """What happens to the next request."""
        return self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]

    def script(self, canary: str, fault: Fault, *, is_stream: bool) -> Iterator[Step]:
        """What is sent, and when."""
        first_s = self._rng.choice((0.001, 0.01, 0.05, 0.3))
        if fault == "slow":
            first_s += self._rng.random() * 3
        if fault in ("reset_first", "stall_first"):
            yield first_s, "reset" if fault == "reset_first" else "stall"
        elif fault in ("error", "busy"):
            yield first_s, self._refusal(fault)
        elif is_stream:
            yield from self._stream(canary, fault, first_s)
        else:
            yield from self._plain(canary, fault, first_s)

    def _refusal(self, fault: Fault) -> bytes:
        status = 429 if fault == "busy" else self._rng.choice((500, 502, 503, 529))
        extra = b"retry-after: 1\r\n" if fault == "busy" else b""
        body = b'{"error": {"message": "no", "type": "x", "param": null, "code": "y"}}'
        return b"HTTP/1.1 %d No\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
            *(status, extra, len(body)),
            body,
        )

    def _plain(self, canary: str, fault: Fault, first_s: float) -> Iterator[Step]:
        tokens = answer_tokens(canary)
        if fault == "no_finish":
            tokens = tokens[:-1]
        message = {"role": "assistant", "content": "".join(tokens)}
        choice = {"index": 0, "message": message, "finish_reason": None if fault == "no_finish" else "stop"}
        usage = {"prompt_tokens": 8, "completion_tokens": len(tokens), "total_tokens": 8 + len(tokens)}
        body = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
                           "usage": usage}).encode()  # fmt: skip
        length = len(body) + (7 if fault == "short_length" else 0)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length
        if fault == "bad_framing":
            head = head.replace(b"content-length: ", b"content-length: +")
        if fault == "reset_head":
            yield first_s, head[:20]
            yield 0.01, "reset"
            return
        half = len(body) // 2
        yield first_s, head + body[:half]
        if fault in ("reset_midway", "stall_midway"):
            yield 0.01, "reset" if fault == "reset_midway" else "stall"
            return
        yield 0.001, body[half:]
        yield from self._behind(fault)

    def _stream(self, canary: str, fault: Fault, first_s: float) -> Iterator[Step]:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        yield first_s, head[:20] if fault == "reset_head" else head
        if fault == "reset_head":
            yield 0.01, "reset"
            return
        tokens = answer_tokens(canary)
        breaks_at = self._rng.randrange(len(tokens)) if fault in ("reset_midway", "stall_midway", "bad_framing") else -1
        for number, token in enumerate(tokens):
            if number == breaks_at:
                yield 0.01, {"reset_midway": "reset", "stall_midway": "stall"}.get(fault, b"zz\r\nnonsense\r\n")  # type: ignore[misc]
                if fault != "bad_framing":
                    return
            delta = {"content": token} if number else {"role": "assistant", "content": token}
            yield self._rng.choice((0.0, 0.002, 0.02)), _chunk(_event(delta))
        if fault == "short_length":
            yield 0.0, "close"  # no end of the chunked body
            return
        if fault != "no_finish":
            yield 0.0, _chunk(_event({}, "stop"))
        if fault not in ("no_done", "no_finish"):
            yield 0.0, _chunk(b"data: [DONE]\n\n")
        yield 0.0, b"0\r\n\r\n"
        yield from self._behind(fault)

    def _behind(self, fault: Fault) -> Iterator[Step]:
        yield 0.0, "over"
        if fault in ("close_behind", "short_length"):
            yield self._rng.choice((0.0, 0.0005, 0.5)), "close"
        elif fault == "extra_bytes":
            status = self._rng.choice((b"200 OK", b"500 Failed", b"408 Timeout"))
            yield 0.0, b"HTTP/1.1 %b\r\ncontent-length: 20\r\n\r\nanswer to nobody    " % status


class UpstreamConnection(asyncio.Protocol):
    """Reads requests one after the other and plays a script for each."""

    def __init__(self, upstream: FaultyUpstream) -> None:
        self._upstream = upstream
        self._input = b""
        self._timer: asyncio.TimerHandle | None = None
        self._steps: Iterator[Step] | None = None
        self._current: Received | None = None
        self._is_muddled = False
        """Whether bytes were sent that belong to no request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(VirtualTransport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._input += data
        self._read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._steps = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self) -> None:
        head, separator, rest = self._input.partition(_HEAD_END)
        if not separator or self._steps is not None:
            return
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        if len(rest) < length:
            return
        body, self._input = rest[:length], rest[length:]
        if head.startswith(b"GET "):
            self._transport.write(_PROBED)
            return
        mark = CANARY.search(body)
        canary, fault = mark[0].decode() if mark else "", self._upstream.draw()
        self._current = Received(canary, fault, self._loop.time(), self._transport, self._is_muddled)
        self._is_muddled = self._is_muddled or fault == "extra_bytes"
        self._upstream.received.append(self._current)
        self._steps = self._upstream.script(canary, fault, is_stream=_STREAM.search(body) is not None)
        self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        if self._steps is None:
            return
        step = next(self._steps, None)
        if step is None:
            self._end_script()
            self._read()
            return
        self._timer = self._loop.call_later(step[0], self._do, step[1])

    def _do(self, action: bytes | str) -> None:
        self._timer = None
        if isinstance(action, bytes):
            self._transport.write(action)
            self._go_on()
        elif action == "over":
            self._note_over()
            self._go_on()
        elif action == "close":
            self._end_script()
            self._transport.close()
        elif action == "reset":
            self._end_script()
            self._transport.abort()

    def _end_script(self) -> None:
        self._steps = None
        self._note_over()

    def _note_over(self) -> None:
        if self._current is not None:
            self._current.is_over = True


def _event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
