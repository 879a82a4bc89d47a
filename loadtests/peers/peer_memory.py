"""Memory of the process that holds the model, with a filled context: the engine's core beside llama.cpp.

Both read one prompt of random tokens and add a few. Resident memory is what the system states of the process, pages of
mapped files included; those can be dropped and read again, so the part that cannot, `anonymous`, is stated too. The
peer's Python and its modules count as the core's do.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from loadtests.clients.completions import complete_tokens
from loadtests.engine.decode_rates import MeasuredProcess
from loadtests.engine.part import Prompts, Results, Setting
from loadtests.harness.card import Card
from loadtests.harness.process_usage import anonymous_bytes, rss_bytes, tree_of
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import start_engine

_DECODED_TOKENS = 33
_MEGABYTE = 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, required=True, help="folder that the engine serves")
    parser.add_argument("--gguf", type=Path, help="the same model for llama.cpp (default: the engine alone)")
    parser.add_argument("--peer-python", default=sys.executable, help="Python with llama_cpp (default: this one)")
    parser.add_argument("--prompt", type=int, default=8000, help="tokens of the prompt (default %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of computing, on either side")
    parser.add_argument("--quantization", default="none", help="of the engine's weights (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prompt (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Fill a context on either side, one after the other."""
    model = options.model.resolve()
    setting = Setting(
        model=model, threads=options.threads, seed=options.seed, data=None, seconds=0, quantization=options.quantization
    )
    prompt = Prompts(model, options.seed).of(options.prompt)
    async with Workbench() as bench:
        server = await start_engine(bench, model, *setting.flags())
        core = _core_of(server.process.pid)
        results: Results = {"ready_mb": rss_bytes(core) / _MEGABYTE}
        await complete_tokens(server.address, prompt, _DECODED_TOKENS)
        results |= _memory_of(core, "filled")
        if options.gguf is not None:
            arguments = ["--model", str(options.gguf.resolve()), "--threads", str(options.threads)]
            module = "loadtests.peers.llama_peer"
            peer = await MeasuredProcess.start(bench, module, arguments, python=options.peer_python)
            await peer.decode([prompt], _DECODED_TOKENS)
            results |= _memory_of(peer.pid, "llama_cpp")
            results["llama_cpp_ratio"] = rss_bytes(core) / rss_bytes(peer.pid)
    return Card(
        bench="peer_memory",
        arrivals=f"one prompt of {options.prompt} random tokens and {_DECODED_TOKENS} more",
        results=results | {"prompt_tokens": options.prompt, "threads": options.threads, "model": model.name},
    )


def _core_of(pid: int) -> int:
    """Return the process of an engine that holds the model. Raises ProcessFailed."""
    for each in tree_of(pid):
        if "engine.core" in Path(f"/proc/{each}/cmdline").read_text().split("\0"):
            return each
    raise ProcessFailed("the engine has no core")


def _memory_of(pid: int, name: str) -> Results:
    return {f"{name}_mb": rss_bytes(pid) / _MEGABYTE, f"{name}_anonymous_mb": anonymous_bytes(pid) / _MEGABYTE}
