"""`python -m loadtests.engines.staged_engine`: an engine whose every stage can be made slow, and is measured.

A request goes through template and tokenizer, the queue (rows, KV tokens), prefill (prompt tokens not in the prefix
cache), decode (steps that grow with rows and with drafts, now and then a preemption). `POST /control` changes the
knobs while it runs; `/metrics` and `/engine/load` are the engine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import uvloop

from loadtests.engines.http_server import (
    STREAM_HEAD,
    TinyConnection,
    chunk,
    delta_event,
    event,
    plain_response,
    serve,
)

_BYTES_PER_TOKEN = 4
_LOAD_PERIOD_S = 0.1
_COMMON: dict[str, object] = {"id": "chatcmpl-staged", "model": "staged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What each stage takes."""

    tokenize_ms: float = 1.0
    prefill_us: float = 20.0
    """For each prompt token that is not in the prefix cache."""
    prefix_ratio: float = 0.0
    step_ms: float = 4.0
    sequence_ms: float = 0.0
    """Each row adds so much to every step."""
    max_num_seqs: int = 64
    kv_tokens: int = 10_000_000
    output_tokens: int = 12
    preempt_ratio: float = 0.0
    preempt_ms: float = 120.0
    drafts: int = 0
    accept_ratio: float = 0.0
    draft_ms: float = 0.0
    cold_requests: int = 0
    """The first so many prompts take ten times as long."""


class StagedEngine:
    """The queue, the rows and the counters."""

    def __init__(self, knobs: Knobs, rng: random.Random) -> None:
        self.knobs = knobs
        self._rng = rng
        self._free = asyncio.Condition()
        self.num_running = 0
        self.num_waiting = 0
        self._kv_used = 0
        self._num_seen = 0
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._totals: dict[str, float] = {}

    async def answer(self, prompt_tokens: int, send: asyncio.Queue[bytes | None]) -> None:
        """Run one request through its stages; events go to `send`, None last."""
        knobs, received_at = self.knobs, time.monotonic()
        await asyncio.sleep(knobs.tokenize_ms / 1e3)
        queued_at = time.monotonic()
        need = prompt_tokens + knobs.output_tokens
        await self._enter(need)
        try:
            started_at = time.monotonic()
            self._observe("queue", started_at - queued_at)
            await self._prefill(knobs, prompt_tokens)
            first_at = time.monotonic()
            self._observe("prefill", first_at - started_at)
            self._observe("ttft", first_at - received_at)
            send.put_nowait(delta_event(_COMMON, {"role": "assistant", "content": "x "}))
            await self._decode(knobs, send)
            ended_at = time.monotonic()
            self._observe("decode", ended_at - first_at)
            self._observe("tpot", (ended_at - first_at) / max(1, knobs.output_tokens - 1))
        finally:
            await self._leave(need)
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": knobs.output_tokens,
            "total_tokens": need,
        }
        send.put_nowait(
            delta_event(_COMMON, {}, "stop") + event({**_COMMON, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
        )
        send.put_nowait(None)

    def load(self) -> dict[str, object]:
        """What `/engine/load` states."""
        return {
            "state": "ready",
            "num_running": self.num_running,
            "num_waiting": self.num_waiting,
            "max_num_seqs": self.knobs.max_num_seqs,
            "max_num_batched_tokens": 2048,
            "step_s": self.knobs.step_ms / 1e3,
        }

    def metrics(self) -> bytes:
        """The engine's metrics as far as it has them."""
        lines = [f"engine_running {self.num_running}", f"engine_waiting {self.num_waiting}"]
        lines.append(f"engine_kv_utilization {self._kv_used / self.knobs.kv_tokens}")
        for name, total in self._sums.items():
            lines.append(f'engine_{name}_seconds_sum{{prompt_bucket="0-256",lane="interactive"}} {total}')
            lines.append(
                f'engine_{name}_seconds_count{{prompt_bucket="0-256",lane="interactive"}} {self._counts[name]}'
            )
        lines += [f"engine_{name}_total {value}" for name, value in self._totals.items()]
        return "\n".join([*lines, ""]).encode()

    async def _enter(self, need: int) -> None:
        def has_room() -> bool:
            knobs = self.knobs
            return self.num_running < knobs.max_num_seqs and self._kv_used + need <= knobs.kv_tokens

        self.num_waiting += 1
        try:
            async with self._free:
                await self._free.wait_for(has_room)
                self.num_running += 1
                self._kv_used += need
        finally:
            self.num_waiting -= 1

    async def _leave(self, need: int) -> None:
        async with self._free:
            self.num_running -= 1
            self._kv_used -= need
            self._free.notify_all()

    async def _prefill(self, knobs: Knobs, prompt_tokens: int) -> None:
        found = int(prompt_tokens * knobs.prefix_ratio)
        self._num_seen += 1
        slow = 10.0 if self._num_seen <= knobs.cold_requests else 1.0
        self._count("prompt_tokens", prompt_tokens)
        self._count("prefix_cache_queries_tokens", prompt_tokens)
        self._count("prefix_cache_hits_tokens", found)
        await asyncio.sleep(slow * (prompt_tokens - found) * knobs.prefill_us / 1e6)

    async def _decode(self, knobs: Knobs, send: asyncio.Queue[bytes | None]) -> None:
        left = knobs.output_tokens - 1
        preempted_at = left // 2 if self._rng.random() < knobs.preempt_ratio else -1
        while left > 0:
            await asyncio.sleep(
                (knobs.step_ms + knobs.sequence_ms * self.num_running + knobs.drafts * knobs.draft_ms) / 1e3
            )
            right = sum(self._rng.random() < knobs.accept_ratio for _ in range(knobs.drafts))
            made = min(left, 1 + right)
            if left == preempted_at:
                self._count("preemptions", 1)
                await asyncio.sleep(knobs.preempt_ms / 1e3)
            left -= made
            self._count("generation_tokens", made)
            self._count("speculation_drafted_tokens", knobs.drafts)
            self._count("speculation_accepted_tokens", right)
            send.put_nowait(delta_event(_COMMON, {"content": "x " * made}))

    def _observe(self, name: str, seconds: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + seconds
        self._counts[name] = self._counts.get(name, 0) + 1

    def _count(self, name: str, amount: float) -> None:
        self._totals[name] = self._totals.get(name, 0.0) + amount


class StagedConnection(TinyConnection):
    """One accepted connection."""

    def __init__(self, engine: StagedEngine) -> None:
        super().__init__()
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()

    def on_lost(self) -> None:
        """Whatever was under way is not wanted any more."""
        for task in tuple(self._tasks):
            task.cancel()

    def on_request(self, method: bytes, path: bytes, head: bytes, body: bytes) -> None:
        """Answer it."""
        if path == b"/control":
            self._engine.knobs = replace(self._engine.knobs, **json.loads(body))
            self.transport.write(plain_response(b"{}"))
        elif method == b"POST":
            self._spawn(self._chat(len(body) // _BYTES_PER_TOKEN))
        elif path == b"/engine/load":
            self.transport.write(STREAM_HEAD)
            self._spawn(self._feed())
        elif path == b"/metrics":
            self.transport.write(plain_response(self._engine.metrics(), kind=b"text/plain"))
        else:
            self.transport.write(plain_response(b'{"ready":true}'))

    def _spawn(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _chat(self, prompt_tokens: int) -> None:
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._spawn(self._engine.answer(prompt_tokens, events))
        event = await events.get()
        self.transport.write(STREAM_HEAD)
        while event is not None:
            self.transport.write(chunk(event))
            event = await events.get()
        self.transport.write(b"0\r\n\r\n")

    async def _feed(self) -> None:
        while True:
            self.transport.write(chunk(event(self._engine.load())))
            await asyncio.sleep(_LOAD_PERIOD_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engines.staged_engine", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="PATH", help="Unix socket; a TCP port is chosen besides")
    parser.add_argument("--knobs", default="{}", help="JSON of those that differ from their defaults")
    options = parser.parse_args(argv)

    async def run() -> None:
        engine = StagedEngine(Knobs(**json.loads(options.knobs)), random.Random(7))
        await serve(options.listen, lambda: StagedConnection(engine))

    uvloop.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
