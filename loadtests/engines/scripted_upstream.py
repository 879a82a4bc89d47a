"""`python -m loadtests.engines.scripted_upstream`: an OpenAI-compatible server that does what it is given, fast.

One JSON line on stdout states the TCP port. A request may carry its own script in `user`, as in
`"user": "script:first_byte_ms=20,num_chunks=50,chunks_per_s=25,fail_after=3,status=503"`; `fail_after=k` resets the
connection after k chunks. `GET /metrics` has counters, the only state there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import uvloop

from loadtests.engines.http_server import (
    CREATED,
    STREAM_HEAD,
    TinyConnection,
    chunk,
    delta_event,
    plain_response,
    serve,
)

_SCRIPT_MARK = b'"script:'
_HEALTH_PATHS = (b"/readyz", b"/livez", b"/health")
_STREAM_MARKS = (b'"stream": true', b'"stream":true')


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScript:
    """How one request is answered."""

    first_byte_ms: float = 0.0
    num_chunks: int = 8
    chunks_per_s: float = 0.0
    chunk_chars: int = 8
    status: int = 200
    fail_after: int = -1


class Wording:
    """The bytes of every answer to one script, made once."""

    def __init__(self, script: AnswerScript) -> None:
        self.script = script
        content = "x" * script.chunk_chars
        common: dict[str, object] = {"id": "chatcmpl-scripted", "model": "scripted"}
        self.role = chunk(delta_event(common, {"role": "assistant", "content": ""}))
        self.delta = chunk(delta_event(common, {"content": content}))
        self.end = chunk(delta_event(common, {}, "stop")) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        usage = {"prompt_tokens": 10, "completion_tokens": script.num_chunks, "total_tokens": 10 + script.num_chunks}
        message = {"role": "assistant", "content": content * script.num_chunks}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"object": "chat.completion", "created": CREATED, **common, "choices": [choice], "usage": usage}
        if script.status != 200:
            answer = {"error": {"message": "as scripted", "type": "api_error", "param": None, "code": None}}
        self.plain = plain_response(json.dumps(answer).encode(), script.status)


class RequestTally:
    """Scripts already worded, and counters."""

    def __init__(self, default: AnswerScript) -> None:
        self.default = default
        self.num_requests = 0
        self.num_open = 0
        self.num_aborted = 0
        self.wording = lru_cache(maxsize=256)(self._word)

    def _word(self, overrides: bytes) -> Wording:
        values: dict[str, float | int] = {}
        for pair in filter(None, overrides.decode().split(",")):
            name, _, value = pair.partition("=")
            values[name] = type(getattr(self.default, name))(value)
        return Wording(replace(self.default, **values))  # type: ignore[arg-type]

    def metrics(self) -> bytes:
        """The counters in Prometheus' text form."""
        counts = (
            ("requests_total", "counter", self.num_requests),
            ("open", "gauge", self.num_open),
            ("aborted_total", "counter", self.num_aborted),
        )
        lines = (f"# TYPE scripted_{name} {kind}\nscripted_{name} {value}\n" for name, kind, value in counts)
        return "".join(lines).encode()


class ScriptedConnection(TinyConnection):
    """One accepted connection."""

    def __init__(self, tally: RequestTally) -> None:
        super().__init__()
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_answering = False

    def on_lost(self) -> None:
        """Whatever was being stated is unsaid."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_answering:
            self._is_answering = False
            self._tally.num_open -= 1
            self._tally.num_aborted += 1

    def on_request(self, method: bytes, path: bytes, head: bytes, body: bytes) -> None:
        """Answer it."""
        if method == b"POST":
            self._answer_chat(body)
        else:
            self._answer_get(path)

    def _answer_get(self, path: bytes) -> None:
        if path == b"/metrics":
            self.transport.write(plain_response(self._tally.metrics(), kind=b"text/plain"))
        elif path in _HEALTH_PATHS:
            self.transport.write(plain_response(b'{"ready":true}'))
        elif path == b"/v1/models":
            self.transport.write(plain_response(b'{"object":"list","data":[{"id":"scripted","object":"model"}]}'))
        else:
            self.transport.write(plain_response(b'{"error":{"message":"no such path"}}', 404))

    def _answer_chat(self, body: bytes) -> None:
        self._tally.num_requests += 1
        self._tally.num_open += 1
        self._is_answering = True
        at = body.find(_SCRIPT_MARK)
        overrides = body[at + len(_SCRIPT_MARK) : body.index(b'"', at + len(_SCRIPT_MARK))] if at >= 0 else b""
        wording = self._tally.wording(overrides)
        is_stream = any(mark in body for mark in _STREAM_MARKS) and wording.script.status == 200
        begin = self._begin_stream if is_stream else self._answer_plain
        if wording.script.first_byte_ms > 0:
            self._timer = self._loop.call_later(wording.script.first_byte_ms / 1e3, begin, wording)
        else:
            begin(wording)

    def _answer_plain(self, wording: Wording) -> None:
        self._end()
        self.transport.write(wording.plain)

    def _begin_stream(self, wording: Wording) -> None:
        script = wording.script
        if script.chunks_per_s <= 0 and script.fail_after < 0:
            self._end()
            self.transport.write(STREAM_HEAD + wording.role + wording.delta * script.num_chunks + wording.end)
            return
        self.transport.write(STREAM_HEAD + wording.role)
        self._send_chunk(wording, 0, self._loop.time())

    def _send_chunk(self, wording: Wording, number: int, due_at: float) -> None:
        script = wording.script
        if number == script.fail_after:
            self.transport.abort()
            return
        if number == script.num_chunks:
            self._end()
            self.transport.write(wording.end)
            return
        self.transport.write(wording.delta)
        due_at += 1.0 / script.chunks_per_s if script.chunks_per_s > 0 else 0.0
        self._timer = self._loop.call_at(due_at, self._send_chunk, wording, number + 1, due_at)

    def _end(self) -> None:
        self._timer = None
        self._is_answering = False
        self._tally.num_open -= 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engines.scripted_upstream", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="PATH", help="Unix socket; a TCP port is chosen besides")
    default = AnswerScript()
    for name in ("first_byte_ms", "num_chunks", "chunks_per_s", "chunk_chars", "status", "fail_after"):
        value = getattr(default, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = vars(parser.parse_args(argv))
    path = options.pop("listen")

    async def run() -> None:
        tally = RequestTally(AnswerScript(**options))
        await serve(path, lambda: ScriptedConnection(tally))

    uvloop.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
