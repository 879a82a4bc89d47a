"""Decode rate of the engine, over HTTP, beside `transformers.generate`: same checkpoint, threads, prompts and run.

Each round measures both at batch 1 and at batch 8, one after the other, so that both see the same machine; the ratio is
of medians over the rounds. Prefill is outside on both sides: what counts is the time in which every sequence of the
batch is decoding, from the last stream's first token to the first stream's last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loadtests.card import Card
from loadtests.client import Address, LoadConnection, clock
from loadtests.processes import Process, ProcessFailed, Workbench
from loadtests.stack import metric, start_engine
from loadtests.wire import request_bytes

_BATCHES = (1, 8)
_ROUNDS = 3
_PROMPT_TOKENS = 32
_MIN_TOKENS = 24
_PATH = "/v1/completions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--seconds", type=float, default=60.0, help="about the whole measurement (default %(default)s)")
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-large"), help="folder")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch, on both sides")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts (default %(default)s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    """One measurement."""

    num_tokens: float
    """Decoded, over the whole batch."""
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Of the whole batch."""
        return self.num_tokens / self.seconds


class _Prompts:
    """Token ids that no two requests share a block of."""

    def __init__(self, model_dir: Path, seed: int) -> None:
        config = json.loads((model_dir / "config.json").read_text())
        self._vocab = int(config["vocab_size"]) * 9 // 10  # special tokens lie at the end
        self.max_tokens = int(config["max_position_embeddings"]) - _PROMPT_TOKENS - 8
        self._rng = random.Random(seed)

    def batch(self, count: int) -> list[list[int]]:
        """`count` prompts of equal length."""
        return [[self._rng.randrange(self._vocab) for _ in range(_PROMPT_TOKENS)] for _ in range(count)]


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    model = options.model.resolve()
    prompts = _Prompts(model, options.seed)
    async with Workbench() as bench:
        flags = ("--num-threads", str(options.threads), "--max-num-rows", str(max(_BATCHES)), "--log-level", "warning")
        engine = await start_engine(bench, model, *flags)
        arguments = ["--model", str(model), "--threads", str(options.threads)]
        reference = await bench.start("reference", "loadtests.reference_decode", arguments)
        await _reply(reference, 0)
        rates = await _measure(engine.address, reference, prompts, options.seconds)
        drafted = await metric(engine.address, "engine_speculation_drafted_tokens_total")
    return _card(options, rates, drafted)


async def _measure(
    engine: Address, reference: Process, prompts: _Prompts, seconds: float
) -> dict[tuple[str, int], list[_Rate]]:
    """Rates by (side, batch), one for each round."""
    rates: dict[tuple[str, int], list[_Rate]] = {
        (side, batch): [] for side in ("engine", "reference") for batch in _BATCHES
    }
    cell_s = seconds / (2 * len(_BATCHES) * (_ROUNDS + 1))
    lengths: dict[int, int] = {}
    num_replies = 1
    for number in range(_ROUNDS + 1):
        for batch in _BATCHES:
            num_tokens = lengths.get(batch, _MIN_TOKENS)
            ours = await _decode_engine(engine, prompts.batch(batch), num_tokens)
            theirs = await _decode_reference(reference, num_replies, prompts.batch(batch), num_tokens)
            num_replies += 1
            if number == 0:  # the warm-up round only finds how many tokens fill the time
                steps_per_s = min(ours.tokens_per_s, theirs.tokens_per_s) / batch
                lengths[batch] = max(_MIN_TOKENS, min(prompts.max_tokens, int(steps_per_s * cell_s)))
                continue
            rates["engine", batch].append(ours)
            rates["reference", batch].append(theirs)
    return rates


async def _decode_engine(address: Address, prompts: Sequence[Sequence[int]], num_tokens: int) -> _Rate:
    """All prompts at once, streamed. Raises ProcessFailed when an answer is not whole."""
    instants: list[list[float]] = [[] for _ in prompts]
    streams = [_stream(address, prompt, num_tokens, seen) for prompt, seen in zip(prompts, instants, strict=True)]
    await asyncio.gather(*streams)
    begin, end = max(seen[0] for seen in instants), min(seen[-1] for seen in instants)
    if end <= begin:  # too few tokens to overlap: then the whole span, prefill of the later ones included
        begin, end = min(seen[0] for seen in instants), max(seen[-1] for seen in instants)
    # An event may carry several tokens; within one stream they are spread evenly enough.
    num_decoded = sum(num_tokens * _share_within(seen, begin, end) for seen in instants)
    return _Rate(num_tokens=num_decoded, seconds=end - begin)


def _share_within(seen: Sequence[float], begin: float, end: float) -> float:
    return sum(begin < instant <= end for instant in seen) / len(seen)


async def _stream(address: Address, prompt: Sequence[int], num_tokens: int, seen: list[float]) -> None:
    body = {
        "model": "bench",
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = await LoadConnection.open(address, keep_body=True)

    def on_piece(now: float, data: bytes) -> None:
        if b'"text":' in data:
            seen.append(now)

    exchange = await connection.exchange(request_bytes("POST", _PATH, json.dumps(body).encode()), on_piece)
    connection.close()
    if not exchange.is_ok or not exchange.has_done:
        raise ProcessFailed(f"the engine answered {exchange.status}: {bytes(connection.scanner.body[-300:])!r}")
    usage = _usage(connection.scanner.content)
    if usage != num_tokens:
        raise ProcessFailed(f"the engine made {usage} tokens where {num_tokens} were asked for")


def _usage(stream: bytes) -> int:
    for event in reversed(stream.split(b"\n\n")):
        if event.startswith(b"data: {"):
            usage = json.loads(event[6:]).get("usage")
            if usage:
                return int(usage["completion_tokens"])
    return 0


async def _decode_reference(process: Process, number: int, prompts: Sequence[Sequence[int]], num_tokens: int) -> _Rate:
    process.write_line(json.dumps({"prompts": prompts, "num_tokens": num_tokens}))
    reply = await _reply(process, number)
    made, seconds = reply["num_tokens"], reply["decode_s"]
    assert isinstance(seconds, float)
    if made != num_tokens:
        raise ProcessFailed(f"transformers made {made} tokens where {num_tokens} were asked for")
    return _Rate(num_tokens=(num_tokens - 1) * len(prompts), seconds=seconds)


async def _reply(process: Process, number: int) -> dict[str, object]:
    """The process' line with this number, counted from 0."""
    deadline = clock() + 300.0
    while len(lines := process.json_lines()) <= number:
        if not process.is_running or clock() > deadline:
            raise ProcessFailed(f"{process.name} gave no answer:\n{process.tail()}")
        await asyncio.sleep(0.02)
    return lines[number]


def _card(options: argparse.Namespace, rates: dict[tuple[str, int], list[_Rate]], drafted: float) -> Card:
    medians = {key: median(rate.tokens_per_s for rate in found) for key, found in rates.items()}
    results: dict[str, float | int | str | None] = {}
    for batch in _BATCHES:
        results[f"decode_b{batch}_ratio"] = medians["engine", batch] / medians["reference", batch]
        results[f"decode_b{batch}_tokens_per_s"] = medians["engine", batch]
        results[f"reference_b{batch}_tokens_per_s"] = medians["reference", batch]
    results |= {"threads": options.threads, "model": options.model.name, "drafted_tokens": int(drafted)}
    notes = []
    for (side, batch), found in rates.items():
        each = ", ".join(f"{rate.tokens_per_s:.1f}" for rate in found)
        notes.append(f"{side:<9} batch {batch}: {each} tokens per s")
    return Card(
        bench="engine",
        arrivals=f"batches of 1 and 8 in turn with transformers, {_ROUNDS} rounds after a warm-up",
        results=results,
        notes=tuple(notes),
    )
