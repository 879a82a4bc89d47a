"""The engine beside llama.cpp and vLLM: the same model, threads and prompts, in turn, alone and beside a neighbour.

llama.cpp runs in a process of its own, under any Python that has `llama_cpp`; vLLM runs as a server. Without either,
only the engine is measured. All sides choose greedily. Prefill is one prompt of random tokens, from admission to the
choice of the first token. Decode is a batch of sequences, from the choice of the first sequence's first token to the
last one's last. Beside vLLM both servers are measured as their client sees them, which the names say: `http`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.clients.completions import complete_tokens
from loadtests.clients.http_client import Address
from loadtests.engine.decode_rates import MeasuredProcess, decode_plain, warm_prefixes
from loadtests.engine.part import Prompts, Results, Setting
from loadtests.engine.repeats import Repeats, Side
from loadtests.harness.card import Card
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import start_engine
from loadtests.peers.vllm_peer import StreamedEngine, start_vllm

_STREAMS = (1, 8, 32)
_PROMPT_TOKENS = (32, 512, 2000)
_DECODED_TOKENS = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """One measurement: a prompt's prefill, or decode of a batch behind prompts of a length."""

    num_streams: int
    """0: prefill."""
    num_tokens: int

    @property
    def name(self) -> str:
        """Name in the results."""
        if self.num_streams == 0:
            return f"prefill_{self.num_tokens}"
        return f"decode_b{self.num_streams}_{self.num_tokens}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, required=True, help="folder that the engine serves")
    parser.add_argument("--gguf", type=Path, help="the same model for llama.cpp (default: the engine alone)")
    parser.add_argument("--peer-python", default=sys.executable, help="Python with llama_cpp (default: this one)")
    parser.add_argument("--vllm", metavar="PROGRAM", help="vLLM's program of its CPU build (default: without vLLM)")
    parser.add_argument("--vllm-model", type=Path, help="folder that vLLM serves (default: that of --model)")
    parser.add_argument("--streams", type=int, nargs="+", default=list(_STREAMS), help="sequences of a decode batch")
    parser.add_argument("--prompts", type=int, nargs="+", default=list(_PROMPT_TOKENS), help="tokens of prompts")
    parser.add_argument("--neighbour", action="store_true", help="again beside a process that takes half of one core")
    parser.add_argument("--seconds", type=float, default=120.0, help="of measuring in all (default %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of computing, on either side")
    parser.add_argument("--quantization", default="none", help="of the engine's weights (default %(default)s)")
    parser.add_argument("--dtype", default="auto", help="of the engine (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure every cell, and again with the neighbour if requested."""
    measured = cells(options.streams, options.prompts)
    places = ("", "neighbour_") if options.neighbour else ("",)
    setting = Setting(
        model=options.model.resolve(),
        threads=options.threads,
        seed=options.seed,
        data=None,
        seconds=options.seconds / len(measured) / len(places),
        quantization=options.quantization,
    )
    results: Results = {}
    notes: list[str] = []
    async with Workbench() as bench:
        most = str(max(options.streams))
        flags = setting.flags("--max-num-seqs", most, "--dtype", options.dtype)
        engine = (await start_engine(bench, setting.model, *flags)).address
        peer = await _start_peer(bench, options)
        server = await _start_vllm(bench, options)
        prompts = Prompts(setting.model, setting.seed)
        for place in places:
            async with _neighbour(bench, is_there=bool(place)):
                for cell in measured:
                    repeats = await _compare(cell, engine, peer, server, prompts, setting.seconds)
                    results |= _results(f"{place}{cell.name}", repeats)
                    lines = [f"{place}{cell.name}: tokens/s {line}" for line in repeats.lines()]
                    print("\n".join(lines), file=sys.stderr, flush=True)  # a long run that is ended says what it found
                    notes += lines
    return Card(
        bench="peers",
        arrivals="closed: one prompt, or a batch of sequences; the sides in turn, median of the rounds' ratios",
        results=results | {"threads": options.threads, "model": setting.model.name, "dtype": options.dtype},
        notes=tuple(notes),
    )


def cells(streams: Sequence[int], prompts: Sequence[int]) -> list[_Cell]:
    """Return all prefills, decode of all batches behind the shortest prompt, and of the smallest behind the others."""
    shortest = min(prompts)
    return [
        *(_Cell(num_streams=0, num_tokens=length) for length in sorted(prompts)),
        *(_Cell(num_streams=count, num_tokens=shortest) for count in sorted(streams)),
        *(_Cell(num_streams=min(streams), num_tokens=length) for length in sorted(prompts) if length != shortest),
    ]


async def _compare(
    cell: _Cell,
    engine: Address,
    peer: MeasuredProcess | None,
    server: StreamedEngine | None,
    prompts: Prompts,
    seconds: float,
) -> Repeats:
    """Measure one cell on all sides in turn."""
    servers = {} if server is None else {"engine_http": StreamedEngine(engine), "vllm_http": server}
    sides: dict[str, Side]
    if cell.num_streams == 0:
        sides = {"engine": partial(_prefill, engine, prompts, cell.num_tokens)}
        if peer is not None:
            sides["llama_cpp"] = partial(_peer_prefill, peer, prompts, cell.num_tokens)
        sides |= {name: partial(_streamed_prefill, one, prompts, cell.num_tokens) for name, one in servers.items()}
    else:
        group = prompts.batch(cell.num_streams, cell.num_tokens)
        await warm_prefixes(engine, group)
        sides = {"engine": partial(_decode, engine, group)}
        if peer is not None:
            sides["llama_cpp"] = partial(_peer_decode, peer, group)
        sides |= {name: partial(one.decode, group, _DECODED_TOKENS) for name, one in servers.items()}
    await Repeats(sides).run_once()  # allocations, caches and prefixes settle
    return await Repeats(sides).run(seconds)


async def _prefill(engine: Address, prompts: Prompts, num_tokens: int) -> float:
    return num_tokens / (await complete_tokens(engine, prompts.of(num_tokens), 1)).prefill_s


async def _peer_prefill(peer: MeasuredProcess, prompts: Prompts, num_tokens: int) -> float:
    return num_tokens / await peer.prefill([prompts.of(num_tokens)])


async def _decode(engine: Address, group: list[list[int]]) -> float:
    return (await decode_plain(engine, group, _DECODED_TOKENS)).tokens_per_s


async def _peer_decode(peer: MeasuredProcess, group: list[list[int]]) -> float:
    return (await peer.decode(group, _DECODED_TOKENS)).tokens_per_s


async def _streamed_prefill(engine: StreamedEngine, prompts: Prompts, num_tokens: int) -> float:
    return await engine.prefill(prompts.of(num_tokens))


def _results(name: str, repeats: Repeats) -> Results:
    found: Results = {f"{name}_tok_s": repeats.median("engine")}
    found |= {f"{name}_{side}_tok_s": repeats.median(side) for side in repeats.found if side != "engine"}
    for own, other in (("engine", "llama_cpp"), ("engine_http", "vllm_http")):
        if other in repeats.found:
            found[f"{name}_{other}_ratio"] = repeats.ratio(own, other)
    return found


async def _start_peer(bench: Workbench, options: argparse.Namespace) -> MeasuredProcess | None:
    """Start llama.cpp; return None without a file for it. Raises ProcessFailed."""
    if options.gguf is None:
        return None
    arguments = ["--model", str(options.gguf.resolve()), "--threads", str(options.threads)]
    return await MeasuredProcess.start(bench, "loadtests.peers.llama_peer", arguments, python=options.peer_python)


async def _start_vllm(bench: Workbench, options: argparse.Namespace) -> StreamedEngine | None:
    """Start vLLM; return None without its program. Raises ProcessFailed."""
    if options.vllm is None:
        return None
    model: Path = options.vllm_model or options.model
    return await start_vllm(bench, options.vllm, model, num_threads=options.threads, max_seqs=max(options.streams))


@asynccontextmanager
async def _neighbour(bench: Workbench, *, is_there: bool) -> AsyncIterator[None]:
    """Run a process beside the block that takes half of one core."""
    if not is_there:
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    process = await bench.start("neighbour", "loadtests.peers.neighbour", ["--share", "0.5"], {cores[0]})
    try:
        yield
    finally:
        await process.stop()
