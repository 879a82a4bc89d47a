"""`python -m loadtests NAME` (and `penstock bench NAME`): run one bench."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, cast

import uvloop

from loadtests.harness.card import Card
from loadtests.harness.processes import ProcessFailed


class Entry(NamedTuple):
    """A bench: its module below this package, and the question that it answers."""

    module: str
    text: str


BENCHES: Final[Mapping[str, Entry]] = {
    "overhead": Entry(
        "gateway.overhead", "what the gateway adds to a request, requests per second and CPU per request of one core"
    ),
    "surfaces": Entry(
        "gateway.surfaces", "what Responses and Messages cost beside chat completions, a request and a stream event"
    ),
    "busy_lookups": Entry(
        "gateway.busy_lookups", "semantic lookups on a machine whose cores are full: late, skipped, and hits kept"
    ),
    "workers": Entry(
        "workers.workers", "requests per second of one worker on one core, of two on two, and the cost of many workers"
    ),
    "streams": Entry(
        "gateway.streams", "many concurrent streams: none lost, what the gateway adds to first token and gaps"
    ),
    "cancel": Entry(
        "gateway.cancel",
        "clients that leave, against the real engine: how fast everything is free again, and that nothing leaks",
    ),
    "engine": Entry(
        "engine.engine",
        "the engine beside transformers and beside itself without a feature: `--all`, or `--only` some parts",
    ),
    "engine_gpu": Entry(
        "engine.gpu", "the engine on a GPU: decode beside the measured copy bandwidth, and the gap between steps"
    ),
    "parity": Entry("peers.parity", "greedy texts of the engine in float32 beside those of transformers"),
    "peers": Entry(
        "peers.peers",
        "the engine beside llama.cpp on a real checkpoint: decode, prefill, and both beside a busy neighbour",
    ),
    "peer_memory": Entry(
        "peers.peer_memory", "memory of the core beside llama.cpp on a real checkpoint, with a filled context"
    ),
    "peer_gateways": Entry(
        "peers.peer_gateways",
        "other gateways beside this one on one core: requests, streams, processor time, and clients that leave",
    ),
    "overload": Entry(
        "overload.overload",
        "goodput, first tokens and refusals at 2, 5 and 10 times capacity, wasted work and recovery",
    ),
    "scenarios": Entry(
        "overload.scenarios",
        "a greedy tenant, a flood of long prompts, a brown-out, leaving clients, clients that retry",
    ),
    "simulate": Entry(
        "simulation.simulate", "the request path in virtual time: a million requests against a hundred engines"
    ),
    "replay": Entry(
        "overload.replay",
        "a recorded trace through the gateway: goodput, and how good the forecast of first tokens was",
    ),
    "quote": Entry(
        "simulation.simulated_quotes",
        "quoted bounds of first tokens under drift: coverage beside the stated one and beside a fixed quantile",
    ),
    "admission_cost": Entry(
        "gateway.admission_cost", "CPU time of pricing, quota, admission and routing with many deployments and tenants"
    ),
    "cache": Entry("cache.cache", "exact hits, what a miss costs, and that no answer crosses a scope"),
    "replicas": Entry(
        "cache.replicas",
        "gateways that share a Redis: how soon a write is a hit elsewhere, what a kill of either loses",
    ),
    "encoder": Entry(
        "cache.encoder", "the text encoder: time of one text in both precisions, and whether int8 decides as fp32 does"
    ),
    "index": Entry(
        "cache.index", "the vector index with very many entries: lookup time, recall, memory, start from a snapshot"
    ),
    "routing": Entry(
        "routing.routing",
        "small or large: quality and calls of the shipped predictor, cascade, attacks; public outcomes",
    ),
    "cascade": Entry(
        "routing.cascade",
        "small first, live: share of large calls beside the simulated one, added first token, cost of both",
    ),
    "off_policy": Entry(
        "routing.off_policy",
        "evaluations of untried policies: coverage of their intervals at every stopping time, width by requests",
    ),
    "policy_change": Entry(
        "gateway.policy_change",
        "how soon a revision is in force at three replicas, with requests under way; none may fail",
    ),
    "plan": Entry(
        "gateway.plan",
        "recorded requests through a new policy: how long it takes, how close it is to what then happens",
    ),
    "cache_quality": Entry(
        "cache.cache_quality",
        "similar answers: hits, wrong ones beside the bound, and changed meanings that are served",
    ),
    "trim": Entry(
        "gateway.trim",
        "answers and tokens with long prompts cut to a budget, prefix hits of a chat that is cut, CPU time",
    ),
    "diagnose": Entry(
        "gateway.diagnose",
        "causes of slowness injected one by one: whether the diagnosis names the right stage, and no other",
    ),
    "capacity": Entry(
        "engine.capacity", "the rate `penstock capacity` gives one replica beside the rate that a real engine keeps"
    ),
    "memory": Entry("gateway.memory", "growth of the gateway's memory over many requests"),
    "soak": Entry(
        "soak.soak", "every kind of client and of trouble for as long as wanted: whether anything is left behind"
    ),
}


class Bench(Protocol):
    """What a bench's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""

    async def run(self, options: argparse.Namespace) -> Card:
        """Measure."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a bench and print its card. Returns 0, or 1 when it failed or its result must not be believed."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name not in BENCHES:
        usage = "\n".join(f"  {known:<14} {entry.text}" for known, entry in BENCHES.items())
        print(f"usage: penstock bench NAME [options]\n\n{usage}", file=sys.stderr)
        if name in ("-h", "--help"):
            return 0
        problem = f"no benchmark is called {name}" if name else "which benchmark?"
        print(f"\npenstock bench: {problem}; choose one of those above", file=sys.stderr)
        return 2
    bench = cast(Bench, importlib.import_module(f"loadtests.{BENCHES[name].module}"))
    parser = argparse.ArgumentParser(prog=f"penstock bench {name}", description=BENCHES[name].text)
    bench.add_arguments(parser)
    try:
        card = uvloop.run(_until_signal(bench.run(parser.parse_args(arguments[1:]))))
    except (ProcessFailed, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143
    card.print_to(sys.stdout)
    return 1 if card.failed is not None else 0


async def _until_signal(measuring: Coroutine[None, None, Card]) -> Card:
    """Like `measuring`, but a SIGTERM cancels it, so that the processes it started are stopped with it."""
    task = asyncio.ensure_future(measuring)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


if __name__ == "__main__":
    sys.exit(main())
