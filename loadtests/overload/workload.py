"""What is offered: requests with their instants, lengths, tenants and lanes; drawn, or read from a trace."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path

TRACES = {
    "azure-code": "azure2023_code.csv.gz",
    "azure-conv": "azure2023_conv.csv.gz",
    "mooncake": "mooncake_conversation.jsonl.gz",
    "servegen": "servegen_mlarge_typical_hour_derived.csv.gz",
}


class TraceMissing(OSError):
    """The trace is not where `--data` points; the message states what was searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One request of a workload."""

    at_s: float
    """When it is due, from the start."""
    prompt_tokens: int
    output_tokens: int
    """What the answer will be long; nobody but the engine knows before."""
    lane: str = "interactive"
    tenant: int = 0
    prefix: tuple[int, ...] = ()
    """Ids of the blocks at the start of the prompt; equal ids are equal text."""
    leaves_after_s: float | None = None
    """The client closes its connection so long after the request was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Log-normal prompt and output lengths, cut off at a maximum."""

    prompt_median: float = 250.0
    prompt_sigma: float = 0.9
    prompt_max: int = 4000
    output_median: float = 45.0
    output_sigma: float = 0.7
    output_max: int = 400

    def draw(self, rng: random.Random) -> tuple[int, int]:
        """(prompt tokens, output tokens)."""
        prompt = rng.lognormvariate(math.log(self.prompt_median), self.prompt_sigma)
        output = rng.lognormvariate(math.log(self.output_median), self.output_sigma)
        return min(self.prompt_max, max(8, round(prompt))), min(self.output_max, max(1, round(output)))


def poisson_offers(
    rate_per_s: float,
    seconds: float,
    rng: random.Random,
    lengths: Lengths,
    *,
    lane: str = "interactive",
    tenant: int = 0,
) -> Iterator[Offer]:
    """Requests of a Poisson process."""
    at_s = rng.expovariate(rate_per_s)
    while at_s < seconds:
        prompt, output = lengths.draw(rng)
        yield Offer(at_s=at_s, prompt_tokens=prompt, output_tokens=output, lane=lane, tenant=tenant)
        at_s += rng.expovariate(rate_per_s)


def merged(*streams: Iterable[Offer]) -> list[Offer]:
    """One workload out of several, by instant."""
    return sorted((offer for stream in streams for offer in stream), key=lambda offer: offer.at_s)


def leaving(offers: Iterable[Offer], share: float, within_s: float, rng: random.Random) -> Iterator[Offer]:
    """The same requests, a share of whose clients leave at an instant drawn evenly from `within_s`."""
    for offer in offers:
        yield replace(offer, leaves_after_s=rng.uniform(0.0, within_s)) if rng.random() < share else offer


def read_trace(name: str, data: Path, rng: random.Random) -> list[Offer]:
    """The whole trace, first request at 0. Raises TraceMissing."""
    path = data / "traces" / TRACES[name]
    path = path if path.exists() else data / TRACES[name]
    if not path.exists():
        raise TraceMissing(f"there is no {TRACES[name]} under {data}; give the folder of the traces with --data")
    readers: dict[str, Callable[[Path, random.Random], Iterator[Offer]]] = {
        "mooncake": _mooncake, "servegen": _servegen
    }  # fmt: skip
    offers = sorted(readers.get(name, _azure)(path, rng), key=lambda offer: offer.at_s)
    start = offers[0].at_s
    return [replace(offer, at_s=offer.at_s - start) for offer in offers]


def scaled(offers: Sequence[Offer], *, seconds: float, rate_per_s: float, context_tokens: int) -> list[Offer]:
    """The busiest-ordered part of a trace squeezed to a rate and a context: order, mix and bursts are stored.

    The first requests that fill `seconds` at `rate_per_s` are taken, time is stretched to reach the rate, and lengths
    are scaled down together so that the longest fits the context.
    """
    part = offers[: max(2, round(seconds * rate_per_s))]
    span = max(part[-1].at_s - part[0].at_s, 1e-9)
    longest = max(offer.prompt_tokens + offer.output_tokens for offer in part)
    factor = min(1.0, context_tokens / longest)
    return [
        replace(
            offer,
            at_s=(offer.at_s - part[0].at_s) / span * seconds,
            prompt_tokens=max(1, round(offer.prompt_tokens * factor)),
            output_tokens=max(1, round(offer.output_tokens * factor)),
        )
        for offer in part
    ]


def _azure(path: Path, rng: random.Random) -> Iterator[Offer]:
    with gzip.open(path, "rt", newline="") as rows:
        for row in csv.DictReader(rows):
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            yield Offer(
                at_s=at.timestamp(),
                prompt_tokens=max(1, int(row["ContextTokens"])),
                output_tokens=max(1, int(row["GeneratedTokens"])),
            )


def _mooncake(path: Path, rng: random.Random) -> Iterator[Offer]:
    """Its clock ticks every 3 s or so: the requests of one tick are spread evenly over it at random."""
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if "timestamp" in row]
    ticks = [(tick, list(group)) for tick, group in groupby(rows, key=lambda row: row["timestamp"])]
    for index, (tick, group) in enumerate(ticks):
        until = ticks[index + 1][0] if index + 1 < len(ticks) else tick + 3000
        for row in group:
            yield Offer(
                at_s=(tick + rng.uniform(0, until - tick)) / 1e3,
                prompt_tokens=max(1, row["input_length"]),
                output_tokens=max(1, row["output_length"]),
                prefix=tuple(row["hash_ids"]),
            )


def _servegen(path: Path, rng: random.Random) -> Iterator[Offer]:
    clients: dict[str, int] = {}
    with gzip.open(path, "rt", newline="") as rows:
        for row in csv.DictReader(rows):
            yield Offer(
                at_s=float(row["t_s"]),
                prompt_tokens=max(1, int(float(row["input_tokens"]))),
                output_tokens=max(1, int(float(row["output_tokens"]))),
                tenant=clients.setdefault(row["client"], len(clients)),
            )
