"""The proof that streams survive their engines: `python -m tests.faults.resume_proof --streams 10000`.

Each round starts an engine and breaks connections to it at random points of streams. Then it kills, stops or drains the
engine, or drains its deployment, while streams of every kind run. Every stream must read as its undisturbed twin. 99 %
of the pauses must be within the time of a fresh request on the other engine and the prefill of the client's tokens. The
last line is one JSON object.
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
from tests.faults.resume_bound import PauseBound, fresh_ttfts_s, percentile, prefill_s_per_token
from tests.faults.resume_stack import (
    KEY_VARIABLE,
    REQUESTS,
    ResumeStack,
    num_roles_of,
    path_of,
    resuming,
    stream_of,
)
from tests.support.fault_proxy import FaultProxy, Toxics

TAKEN_OUT: Final = "taken out"
"""Fate of an engine whose deployment an operator drains."""
SIGNALS: Final = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP, "drained": signal.SIGTERM}
"""Signal for each fate of an engine."""
SPECULATION: Final = ("--speculation", "auto")
"""Flags of engines that verify predictions."""
FATES: Final = (*SIGNALS, TAKEN_OUT)
"""What ends the streams of an engine."""
NUM_SIGNALLED: Final = 2 * len(REQUESTS)
"""Streams that run when an engine gets its signal."""
_LONG_TOKENS: Final = 150
_INTER_TOKEN_MS: Final = 2000
COMPLETION: Final = b"endpoint-load-metrics: "
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
    if undisturbed is None or not undisturbed.is_whole:
        return [f"{kind}: the undisturbed stream is {undisturbed}"]
    if (undisturbed.num_roles, undisturbed.num_identities) != (num_roles_of(body), 1):
        return [f"{kind}: the undisturbed stream is {undisturbed}"]
    if predicts:
        body["prediction"] = {"type": "content", "content": changed_text(undisturbed.choices[0].content, rng)}
    num_bytes = len((await stack.call(body, path=path_of(body))).body)
    lost = []
    for _ in range(num):
        point = rng.randint(_HEAD_BYTES, max(num_bytes, _HEAD_BYTES + 1))
        ends: Literal["reset", "close"] = "reset" if rng.random() < 0.5 else "close"
        stack.first.toxics = Toxics(limit_bytes=point, limit_behind=COMPLETION, limit_ends=ends)
        found = await stack.read(body)
        if found is not None and found != undisturbed:
            lost.append(f"{kind} cut at {point}: {found} in place of {undisturbed}")
    stack.first.toxics = Toxics()
    return lost


async def struck(stack: ResumeStack, engine: LoneEngine, fate: str, rng: random.Random) -> list[str]:
    """Let the first engine meet its fate while streams of every kind run; return what is not equal."""
    bodies = [stream_of(kind, _LONG_TOKENS) for kind in REQUESTS] * (NUM_SIGNALLED // len(REQUESTS))
    started_at = time.monotonic()
    undisturbed = await asyncio.gather(*map(stack.read, bodies))
    took_s = time.monotonic() - started_at
    reading = [asyncio.create_task(stack.read(body)) for body in bodies]
    await asyncio.sleep(rng.uniform(0.15, 0.4) * took_s)
    if fate in SIGNALS:
        os.kill(engine.pid, SIGNALS[fate])
    else:
        await stack.take_out("first")
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
    bound = PauseBound()
    await _warm_up(stable, rng)
    while num_done < num_streams:
        here, fate = folder / str(round_number), FATES[round_number % len(FATES)]
        here.mkdir()
        with lone_engine(here, "--resume-key-env", KEY_VARIABLE, *_flags(predicts=predicts)) as victim:
            async with resuming(here, victim, stable, inter_token_ms=_INTER_TOKEN_MS) as stack:
                lost = []
                bound.prefill_s.append(await prefill_s_per_token(stack.second.url, rng))
                fresh_s = []
                for kind in REQUESTS:
                    lost += await breaking_connections(stack, kind, rng, per_repeat // len(REQUESTS), predicts=predicts)
                    fresh_s += await fresh_ttfts_s(stack.second.url, [kind], rng)
                cut = stack.pauses()
                bound.add("cut", cut, fresh_s, is_at_once=False)
                lost += await struck(stack, victim, fate, rng)
                fresh_s = await fresh_ttfts_s(stack.second.url, [*REQUESTS] * (NUM_SIGNALLED // len(REQUESTS)), rng)
                bound.add(fate, stack.pauses()[len(cut) :], fresh_s, is_at_once=True)
                num_resumed += await stack.num_resumed()
                num_not_begun += stack.num_not_begun
        num_done += per_repeat // len(REQUESTS) * len(REQUESTS) + NUM_SIGNALLED
        num_lost += len(lost)
        round_number += 1
        print(f"round {round_number}: {fate}, {num_done} streams, {num_lost} lost", *lost, sep="\n  ", flush=True)
    pauses = [pause_s for found in bound.pauses_s.values() for pause_s, _ in found]
    report = bound.report()
    result = {
        "streams": num_done,
        "resumed": num_resumed,
        "lost": num_lost,
        "failed_before_a_byte": num_not_begun,
        "pause_p50_ms": round(percentile(pauses, 50) * 1000, 1) if pauses else None,
        "pause_p99_ms": round(percentile(pauses, 99) * 1000, 1) if pauses else None,
        **report,
    }
    print(json.dumps(result))
    return num_lost + (not report["is_held"])


async def _warm_up(engine: LoneEngine, rng: random.Random) -> None:
    """Let the other engine serve every kind once, as a replica in service has."""
    async with FaultProxy(engine.path) as proxy:
        await fresh_ttfts_s(proxy.url, [*REQUESTS], rng)


def _flags(*, predicts: bool) -> tuple[str, ...]:
    return SPECULATION if predicts else ()


def main() -> int:
    """Run the proof; return 1 if a stream was lost, or too many pauses are longer than their bounds."""
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
