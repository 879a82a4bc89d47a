"""The proof that streams survive their engines: `python -m tests.faults.resume_proof --streams 10000`.

Each round starts an engine, breaks connections to it at random points of streams, and kills, stops or drains it while
streams of every kind run. Every stream must read as its undisturbed twin. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Literal

from loadtests.engine.prediction.varied_requests import changed_text
from tests.e2e.lone_engine import LoneEngine, lone_engine
from tests.faults.resume_stack import KEY_VARIABLE, REQUESTS, ResumeStack, resuming, stream_of
from tests.support.fault_proxy import Toxics

SIGNALS: Final = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP, "drained": signal.SIGTERM}
"""Signal for each fate of an engine."""
SPECULATION: Final = ("--speculation", "auto")
"""Flags of engines that verify predictions."""
NUM_SIGNALLED: Final = 2 * len(REQUESTS)
"""Streams that run when an engine gets its signal."""
_LONG_TOKENS: Final = 150
_COMPLETION: Final = b"endpoint-load-metrics: "
"""Part of the head of each completion, and of no other answer of an engine."""
_HEAD_BYTES: Final = 600
"""Bytes of an answer's head and its first event."""


async def breaking_connections(
    stack: ResumeStack, kind: str, rng: random.Random, num: int, *, predicts: bool = False
) -> list[str]:
    """Break the first engine's connection once in each of `num` streams of a kind; return what is not equal.

    `predicts`: the broken streams have a prediction, the answer with other words here and there; the undisturbed one
    has none.
    """
    body = stream_of(kind)
    undisturbed = await stack.read(body)
    if undisturbed is None or not undisturbed.is_whole or undisturbed.num_roles != 1 or undisturbed.num_identities != 1:
        return [f"{kind}: the undisturbed stream is {undisturbed}"]
    if predicts:
        body["prediction"] = {"type": "content", "content": changed_text(undisturbed.content, rng)}
    num_bytes = len((await stack.call(body)).body)
    lost = []
    for _ in range(num):
        point = rng.randint(_HEAD_BYTES, max(num_bytes, _HEAD_BYTES + 1))
        ends: Literal["reset", "close"] = "reset" if rng.random() < 0.5 else "close"
        stack.first.toxics = Toxics(limit_bytes=point, limit_behind=_COMPLETION, limit_ends=ends)
        found = await stack.read(body)
        if found is not None and found != undisturbed:
            lost.append(f"{kind} cut at {point}: {found} in place of {undisturbed}")
    stack.first.toxics = Toxics()
    return lost


async def signalled(stack: ResumeStack, engine: LoneEngine, fate: str, rng: random.Random) -> list[str]:
    """Send the first engine a signal while streams of every kind run; return what is not equal."""
    bodies = [stream_of(kind, _LONG_TOKENS) for kind in REQUESTS] * (NUM_SIGNALLED // len(REQUESTS))
    started_at = time.monotonic()
    undisturbed = await asyncio.gather(*map(stack.read, bodies))
    took_s = time.monotonic() - started_at
    reading = [asyncio.create_task(stack.read(body)) for body in bodies]
    await asyncio.sleep(rng.uniform(0.15, 0.4) * took_s)
    os.kill(engine.pid, SIGNALS[fate])
    try:
        found = await asyncio.gather(*reading)
    finally:
        if fate == "hung":
            os.kill(engine.pid, signal.SIGCONT)
    return [
        f"{body}, {fate}: {read} in place of {expected}"
        for body, read, expected in zip(bodies, found, undisturbed, strict=True)
        if expected is None or not expected.is_whole or (read is not None and read != expected)
    ]


async def _repeats(
    folder: Path, stable: LoneEngine, num_streams: int, per_repeat: int, rng: random.Random, *, predicts: bool
) -> int:
    """Run rounds until so many streams were disturbed; print each, and return the number of those that were lost."""
    num_done, num_lost, num_not_begun, num_resumed, round_number = 0, 0, 0, 0.0, 0
    pauses: list[float] = []
    while num_done < num_streams:
        here, fate = folder / str(round_number), list(SIGNALS)[round_number % len(SIGNALS)]
        here.mkdir()
        with lone_engine(here, "--resume-key-env", KEY_VARIABLE, *_flags(predicts=predicts)) as victim:
            async with resuming(here, victim, stable, inter_token_ms=2000) as stack:
                lost = []
                for kind in REQUESTS:
                    lost += await breaking_connections(stack, kind, rng, per_repeat // len(REQUESTS), predicts=predicts)
                lost += await signalled(stack, victim, fate, rng)
                num_resumed += await stack.num_resumed()
                pauses += stack.pauses_s()
                num_not_begun += stack.num_not_begun
        num_done += per_repeat // len(REQUESTS) * len(REQUESTS) + NUM_SIGNALLED
        num_lost += len(lost)
        round_number += 1
        print(f"round {round_number}: {fate}, {num_done} streams, {num_lost} lost", *lost, sep="\n  ", flush=True)
    pauses.sort()
    result = {
        "streams": num_done,
        "resumed": num_resumed,
        "lost": num_lost,
        "failed_before_a_byte": num_not_begun,
        "pause_p50_ms": round(pauses[len(pauses) // 2] * 1000, 1) if pauses else None,
        "pause_p99_ms": round(pauses[len(pauses) * 99 // 100] * 1000, 1) if pauses else None,
    }
    print(json.dumps(result))
    return num_lost


def _flags(*, predicts: bool) -> tuple[str, ...]:
    return SPECULATION if predicts else ()


def main() -> int:
    """Run the proof; return 1 if a stream was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.resume_proof", description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000, help="streams to disturb (default %(default)s)")
    parser.add_argument("--per-repeat", type=int, default=200, help="streams for each engine (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the points (default %(default)s)")
    parser.add_argument("--predictions", action="store_true", help="predict the answers of streams that are cut")
    options = parser.parse_args()
    os.environ[KEY_VARIABLE] = "0123456789abcdef" * 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stable").mkdir()
        predicts: bool = options.predictions
        with lone_engine(folder / "stable", "--resume-key-env", KEY_VARIABLE, *_flags(predicts=predicts)) as stable:
            rng = random.Random(options.seed)
            repeats = _repeats(folder, stable, options.streams, options.per_repeat, rng, predicts=predicts)
            return int(asyncio.run(repeats) > 0)


if __name__ == "__main__":
    sys.exit(main())
