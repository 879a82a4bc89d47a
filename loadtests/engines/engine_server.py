"""`python -m loadtests.engines.engine_server`: the modelled engine as an OpenAI-compatible server.

It computes nothing; it takes as long as an engine of the stated shape would, queue included. The true length of an
answer is hidden from whoever routes: the client writes it into `user`, as in `"user": "script:output_tokens=57,id=12"`;
a prompt counts one token for every four bytes of the body. One JSON line on stdout states the TCP port.

`GET /metrics` has counters, `GET /aborts` (id, instant, tokens made) of every request whose client left, and
`POST /slowdown` with a number in the body makes every step that many times as long. Unless started with `--silent`, it
publishes its load at `/engine/load` the way this project's engine does; a silent one is like any other server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence

import uvloop

from loadtests.engines.http_server import (
    CREATED,
    STREAM_HEAD,
    TinyConnection,
    chunk,
    delta_event,
    event,
    plain_response,
    serve,
)
from loadtests.engines.modelled_engine import USUAL_OUTPUT_TOKENS, EngineModel, EngineShape, Job, Step, lane_work

BYTES_PER_TOKEN = 4
_SCRIPT = re.compile(rb'"user"\s*:\s*"script:output_tokens=(\d+)(?:,id=(\d+))?"')
_MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d+)')
_STREAM_MARKS = (b'"stream": true', b'"stream":true')
_LOAD_PERIOD_S = 0.1
_RATE_WINDOW_STEPS = 200

_COMMON: dict[str, object] = {"id": "chatcmpl-model", "model": "scripted"}
_ROLE = chunk(delta_event(_COMMON, {"role": "assistant", "content": ""}))
_TOKEN = chunk(delta_event(_COMMON, {"content": "x "}))


def _stream_end(job: Job) -> bytes:
    last = delta_event({**_COMMON, "usage": _usage(job)}, {}, "stop")
    return chunk(last) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _plain(job: Job) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x " * job.num_made}, "finish_reason": "stop"}
    answer = {"object": "chat.completion", "created": CREATED, **_COMMON, "choices": [choice], "usage": _usage(job)}
    return plain_response(json.dumps(answer).encode())


def usage_of(prompt_tokens: int, output_tokens: int) -> dict[str, object]:
    """What an answer is counted as; nothing is ever cached."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _usage(job: Job) -> dict[str, object]:
    return usage_of(job.prompt_tokens, job.num_made)


class Engine:
    """The model, run against the clock; shows each job's connection of its tokens."""

    def __init__(self, shape: EngineShape) -> None:
        self.model = EngineModel(shape)
        self.aborts: list[tuple[int, float, int]] = []
        self.num_requests = 0
        self.num_wasted = 0
        """Tokens made for requests whose client left before the end."""
        self._owners: dict[Job, ModelConnection] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stepping = False
        self._step_s = 0.0
        self._drain_tokens_per_s = 0.0

    def submit(self, job: Job, owner: ModelConnection) -> None:
        """A request arrives."""
        self.num_requests += 1
        self._owners[job] = owner
        self.model.add(job)
        if not self._is_stepping:
            self._is_stepping = True
            self._step(self._loop.time())

    def abort(self, job: Job, request_id: int) -> None:
        """Its client left."""
        if self._owners.pop(job, None) is not None:
            self.model.remove(job)
            self.num_wasted += job.num_made
            self.aborts.append((request_id, time.perf_counter(), job.num_made))

    def _step(self, started_at: float) -> None:
        step = self.model.begin()
        if step is None:
            self._is_stepping = False
            return
        self._loop.call_at(started_at + step.seconds, self._finish, step, started_at + step.seconds)

    def _finish(self, step: Step, ended_at: float) -> None:
        num_tokens = len(step.decoding) + sum(count for _, count in step.reading)
        self._step_s = step.seconds
        share = 1 / _RATE_WINDOW_STEPS
        self._drain_tokens_per_s += share * (num_tokens / step.seconds - self._drain_tokens_per_s)
        for job in self.model.finish(step):
            owner = self._owners[job]
            if job.is_done:
                del self._owners[job]
            owner.on_token(job)
        # Steps follow each other without a gap, as on a device; a late timer does not make the engine slower.
        self._step(max(ended_at, self._loop.time() - 0.5))

    def load(self) -> dict[str, object]:
        """What `/engine/load` states: the fields of this project's engine that a model has."""
        model, shape = self.model, self.model.shape
        jobs, slow, unread = self._owners, model.slowdown, model.unread_tokens
        expected = USUAL_OUTPUT_TOKENS * len(jobs)
        short, long = (
            {
                "num_running": model.num_running,
                "num_waiting": model.num_waiting,
                "waiting_prompt_tokens": tokens,
                "expected_output_tokens": expected,
                "forecast_wait_s": work.wait_s,
                "prefill_tokens_per_s": work.prefill_tokens_per_s,
            }
            for work, tokens in zip(
                lane_work(shape, model.num_running, model.num_waiting, unread, slow), unread, strict=True
            )
        )
        return {
            "state": "ready",
            "ready": True,
            "num_open": len(jobs),
            "block_size": 16,
            "max_model_len": 32768,
            "max_num_seqs": shape.max_num_seqs,
            "max_num_batched_tokens": shape.step_tokens,
            "num_running": model.num_running,
            "num_waiting": model.num_waiting,
            "num_blocks_total": 100_000,
            "num_blocks_free": 100_000,
            "num_blocks_cached": 0,
            "num_blocks_leaked": 0,
            "num_kv_tokens": 0,
            "step_s": self._step_s,
            "num_step_tokens": model.num_running,
            "waiting_prompt_tokens": sum(unread),
            "expected_output_tokens": expected,
            "drain_tokens_per_s": self._drain_tokens_per_s,
            "forecast_wait_s": short["forecast_wait_s"],
            "step_time": {
                "fixed_s": shape.step_fixed_ms * slow / 1e3,
                "row_s": shape.sequence_us * slow / 1e6,
                "prefill_token_s": shape.prefill_us * slow / 1e6,
                "kv_token_s": 0.0,
                "pair_s": 0.0,
                "chunk_s": 0.0,
            },
            "lanes": {"interactive": short, "long": long, "batch": long},
        }

    def metrics(self) -> bytes:
        """The counters as Prometheus text."""
        model = self.model
        counts = (
            ("requests_total", "counter", self.num_requests),
            ("open", "gauge", len(self._owners)),
            ("tokens_made_total", "counter", model.num_made),
            ("prompt_tokens_total", "counter", model.num_read),
            ("tokens_wasted_total", "counter", self.num_wasted),
            ("aborted_total", "counter", len(self.aborts)),
        )
        lines = (f"# TYPE model_{name} {kind}\nmodel_{name} {value}\n" for name, kind, value in counts)
        return "".join(lines).encode()


class ModelConnection(TinyConnection):
    """One accepted connection."""

    def __init__(self, engine: Engine, *, is_silent: bool) -> None:
        super().__init__()
        self._engine = engine
        self._is_silent = is_silent
        self._job: Job | None = None
        self._request_id = 0
        self._is_stream = False
        self._feed: asyncio.TimerHandle | None = None

    def on_lost(self) -> None:
        """The request's row is free at once."""
        if self._feed is not None:
            self._feed.cancel()
        if self._job is not None:
            self._engine.abort(self._job, self._request_id)
            self._job = None

    def on_request(self, method: bytes, path: bytes, head: bytes, body: bytes) -> None:
        """Chat, or one of the pages."""
        if method == b"POST" and path == b"/slowdown":
            self._engine.model.slowdown = float(body)
            self.transport.write(plain_response(b"{}"))
        elif method == b"POST":
            self._chat(body)
        elif path == b"/engine/load" and not self._is_silent:
            self.transport.write(STREAM_HEAD)
            self._publish()
        else:
            self._page(path)

    def on_token(self, job: Job) -> None:
        """One more token, perhaps the last."""
        if job.is_done:
            self._job = None
        if not self._is_stream:
            if job.is_done:
                self.transport.write(_plain(job))
            return
        pieces = [STREAM_HEAD, _ROLE] if job.num_made == 1 else []
        pieces.append(_TOKEN)
        if job.is_done:
            pieces.append(_stream_end(job))
        self.transport.write(b"".join(pieces))

    def _chat(self, body: bytes) -> None:
        script, limit = _SCRIPT.search(body), _MAX_TOKENS.search(body)
        output = int(script.group(1)) if script else USUAL_OUTPUT_TOKENS
        self._request_id = int(script.group(2) or 0) if script else 0
        output = max(1, min(output, int(limit.group(1)) if limit else output))
        self._is_stream = any(mark in body for mark in _STREAM_MARKS)
        self._job = Job(prompt_tokens=max(1, len(body) // BYTES_PER_TOKEN), output_tokens=output)
        self._engine.submit(self._job, self)

    def _publish(self) -> None:
        self.transport.write(chunk(event(self._engine.load())))
        self._feed = asyncio.get_running_loop().call_later(_LOAD_PERIOD_S, self._publish)

    def _page(self, path: bytes) -> None:
        if path == b"/metrics":
            self.transport.write(plain_response(self._engine.metrics(), kind=b"text/plain"))
        elif path == b"/aborts":
            self.transport.write(plain_response(json.dumps(self._engine.aborts).encode()))
        elif path in (b"/readyz", b"/livez"):
            self.transport.write(plain_response(b'{"ready":true}'))
        elif path == b"/v1/models":
            self.transport.write(plain_response(b'{"object":"list","data":[{"id":"scripted","object":"model"}]}'))
        else:
            self.transport.write(plain_response(b'{"error":{"message":"no such path"}}', 404))


def add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that make an EngineShape."""
    default = EngineShape()
    for name in EngineShape.__dataclass_fields__:
        value = getattr(default, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(value), default=value, help="of the modelled engine (%(default)s)"
        )


def shape_of(options: argparse.Namespace) -> EngineShape:
    """The shape that the options describe."""
    return EngineShape(**{name: getattr(options, name) for name in EngineShape.__dataclass_fields__})


def shape_arguments(shape: EngineShape) -> list[str]:
    """The options that describe the shape."""
    names = EngineShape.__dataclass_fields__
    return [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(shape, name)))]


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engines.engine_server", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="PATH", help="Unix socket; a TCP port is chosen besides")
    parser.add_argument("--silent", action="store_true", help="publish no load, like another make of server")
    add_shape_arguments(parser)
    options = parser.parse_args(argv)

    async def run() -> None:
        engine = Engine(shape_of(options))
        await serve(options.listen, lambda: ModelConnection(engine, is_silent=options.silent))

    uvloop.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
