"""Quotes in virtual time: whether first tokens come within the quoted bounds as often as stated, while much drifts.

A recorded trace runs through the gateway in four parts of equal length. In the first nothing changes. In the second
every engine takes twice as long for each step. In the third the speed is back, and neighbours that this gateway does
not see send half of the load to the same engines. In the fourth they are gone, and all prompts are twice as long.

Two kinds of bounds are counted: those of every request at its admission, and those of clients that call `/v1/quote`,
wait for some of the time that the quote holds, and send it back. Beside the first stands what a fixed quantile of the
first part's scores would have stated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gateway.http.asgi import Header
from loadtests.clients.chat_streams import Slo
from loadtests.engines.engine_server import add_shape_arguments, shape_of
from loadtests.engines.modelled_engine import EngineShape
from loadtests.engines.virtual_engine import VirtualJob
from loadtests.harness.card import Card, Value
from loadtests.overload.replay import offers_of, warm_up
from loadtests.overload.workload import TRACES, Offer
from loadtests.simulation.simulation import Outcome, SimulatedCall, Simulation, body_of, in_virtual_time
from routing_policies.estimation.coverage import TtftBounds, percent_of, ttft_bound_of, ttft_score_of

PARTS: Final = ("steady", "slower", "neighbours", "longer")
_SLOWDOWN: Final = 2.0
_NEIGHBOURS: Final = 0.5
"""Requests of neighbours for each of the gateway's own."""
_LENGTHENING: Final = 2.0
_WINDOW: Final = 200
"""Requests of a window whose coverage is counted."""
_HOLD_S: Final = 5.0
_SLO: Final = Slo(ttft_s=2.0, tpot_s=0.2)
"""Targets beyond which the gateway refuses a request, as it would in use."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One request whose bound was stated before it was sent."""

    forecast_s: float
    ttft_s: float
    bound_s: float

    @property
    def is_met(self) -> bool:
        """Whether the first token came within the bound."""
        return self.ttft_s <= self.bound_s


@dataclass(slots=True)
class Measurements:
    """All bounds of a run, by part."""

    at_once: dict[str, list[Measured]] = field(default_factory=lambda: {part: [] for part in PARTS})
    """Bounds at admission, of the requests without a quote."""
    quoted: dict[str, list[Measured]] = field(default_factory=lambda: {part: [] for part in PARTS})
    part: str = PARTS[0]
    num_refused: int = 0
    """Quotes for requests that would be refused."""
    num_not_reserved: int = 0
    failure: str | None = None

    def all_at_once(self) -> list[Measured]:
        """Return the bounds at admission in the order of their first tokens."""
        return [one for part in PARTS for one in self.at_once[part]]

    def all_quoted(self) -> list[Measured]:
        """Return the quoted bounds in the order of their first tokens."""
        return [one for part in PARTS for one in self.quoted[part]]


class MeasuredBounds(TtftBounds):
    """The gateway's own bounds, which also write down what they learn from."""

    def __init__(self, coverage: float, measurements: Measurements) -> None:
        super().__init__(coverage)
        self._percent = percent_of(coverage)
        self._measurements = measurements

    def observe(self, forecast_s: float, ttft_s: float, limits: Sequence[tuple[int, float]]) -> None:
        """Learn from a request without a quote."""
        for percent, limit in limits:
            if percent == self._percent:
                found = self._measurements.at_once[self._measurements.part]
                found.append(Measured(forecast_s, ttft_s, ttft_bound_of(forecast_s, limit)))
        super().observe(forecast_s, ttft_s, limits)

    def observe_quoted(self, forecast_s: float, ttft_s: float, coverage: float, bound_s: float) -> None:
        """Learn from a request with a quote."""
        self._measurements.quoted[self._measurements.part].append(Measured(forecast_s, ttft_s, bound_s))
        super().observe_quoted(forecast_s, ttft_s, coverage, bound_s)


class _QuoteCall(SimulatedCall):
    """A client that wants a quote, or sends one back."""

    __slots__ = ("answer", "quote")

    def __init__(self, offer: Offer, body: bytes, clock: Any, quote: str | None = None) -> None:
        super().__init__(offer, body, clock)
        self.quote = quote
        self.answer: Any = None

    def respond(self, status: int, headers: Iterable[Header], body: bytes) -> bool:
        """A whole response."""
        self.answer = json.loads(body)
        return super().respond(status, headers, body)

    def scope(self, key: str | None = None) -> dict[str, Any]:
        """As the edge would make it."""
        made = super().scope(key)
        if self.quote is None:
            return {**made, "path": "/v1/quote", "query_string": b""}
        return {**made, "headers": [*made["headers"], (b"x-penstock-quote", self.quote.encode())]}


class QuoteSimulation(Simulation):
    """A simulation in which a share of the clients get a quote first."""

    def __init__(
        self, shape: EngineShape, num_engines: int, folder: Path, seed: int, *, coverage: float, share: float
    ) -> None:
        rules = {"coverage": coverage, "hold_ms": round(_HOLD_S * 1000), "max_held": 1000}
        super().__init__(shape, num_engines, _SLO, folder, seed, policy={"quotes": rules})
        self._rng = random.Random(f"quotes:{seed}")
        self._share = share
        self.measurements = Measurements()
        for live in self.lives:
            live.ttft_bounds = MeasuredBounds(coverage, self.measurements)

    def begin_part(self, part: str) -> None:
        """Let the engines drift, and count for another part."""
        self.measurements.part = part
        for engine in self.engines:
            engine.model.slowdown = _SLOWDOWN if part == "slower" else 1.0

    def add_neighbour(self, offer: Offer) -> None:
        """Send a request to an engine past the gateway."""
        job = VirtualJob(offer.prompt_tokens, offer.output_tokens, on_first=_ignore, on_last=_ignore)
        self._rng.choice(self.engines).add(job)

    async def serve(self, offer: Offer, due_at: float, outcome: Outcome) -> None:
        """Serve one request, with or without a quote."""
        if self._rng.random() >= self._share:
            await super().serve(offer, due_at, outcome)
            return
        self.num_offered += 1
        body = body_of(offer, self.num_offered)
        wanted = _QuoteCall(offer, body, self.loop.clock)
        await self.gateway.quotes(wanted.scope(), wanted.receive, wanted.send)
        quote = wanted.answer
        if not quote["admitted"]:
            self.measurements.num_refused += 1
            return
        self.measurements.num_not_reserved += not quote["reserved"]
        await asyncio.sleep(self._rng.uniform(0.0, 0.95 * _HOLD_S))
        call = _QuoteCall(offer, body, self.loop.clock, quote["quote"])
        sent_at = self.loop.time()
        await self.gateway.pipeline(call.scope(), call.receive, call.send)
        outcome.note(call, _SLO, sent_at)


def _ignore() -> None:
    """Ignore a neighbour's token."""


def drifting(offers: Sequence[Offer], seconds: float) -> list[list[Offer]]:
    """The offers of each part, from its start; in the last one prompts are longer."""
    length_s = seconds / len(PARTS)
    found: list[list[Offer]] = [[] for _ in PARTS]
    for offer in offers:
        number = min(int(offer.at_s / length_s), len(PARTS) - 1)
        tokens = round(offer.prompt_tokens * (_LENGTHENING if PARTS[number] == "longer" else 1.0))
        found[number].append(replace(offer, at_s=offer.at_s - number * length_s, prompt_tokens=tokens))
    return found


def measure(
    parts: Sequence[Sequence[Offer]],
    shape: EngineShape,
    num_engines: int,
    seed: int,
    *,
    coverage: float = 0.95,
    share: float = 0.3,
    is_silent: bool = False,
) -> Measurements:
    """The bounds of a run, and what became of them; runs its own loop."""

    async def main(folder: Path) -> Measurements:
        simulation = QuoteSimulation(shape, num_engines, folder, seed, coverage=coverage, share=share)
        if not is_silent:
            simulation.publish_loads()
        await simulation.run(warm_up(10.0))
        for part, offers in zip(PARTS, parts, strict=True):
            simulation.begin_part(part)
            beside = asyncio.create_task(_neighbours(simulation, offers if part == "neighbours" else ()))
            await simulation.run(offers)
            await beside
        simulation.measurements.failure = simulation.close()
        return simulation.measurements

    return in_virtual_time(main)


async def _neighbours(simulation: QuoteSimulation, offers: Sequence[Offer]) -> None:
    """Send a share of the same requests again, past the gateway and a little later."""
    loop, rng = asyncio.get_running_loop(), random.Random(len(offers))
    began_at = loop.time()
    for offer in offers:
        due_at = began_at + offer.at_s + 0.5
        if rng.random() < _NEIGHBOURS:
            await asyncio.sleep(max(due_at - loop.time(), 0.0))
            simulation.add_neighbour(offer)


def coverage_of(found: Sequence[Measured]) -> float:
    """The share of bounds that were met."""
    return sum(one.is_met for one in found) / max(len(found), 1)


def window_coverages(found: Sequence[Measured], size: int = _WINDOW) -> list[float]:
    """The coverage of each window of so many requests in a row."""
    return [coverage_of(found[at : at + size]) for at in range(0, len(found) - size + 1, size)]


def with_fixed_quantile(found: Sequence[Measured], first: Sequence[Measured], coverage: float) -> list[Measured]:
    """The same requests with bounds by the quantile that the scores of `first` have, which never changes."""
    scores = sorted(ttft_score_of(one.forecast_s, one.ttft_s) for one in first)
    limit = scores[min(math.ceil((len(scores) + 1) * coverage), len(scores)) - 1]
    return [replace(one, bound_s=ttft_bound_of(one.forecast_s, limit)) for one in found]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--trace", choices=tuple(TRACES), default="azure-conv", help="which one (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces")
    parser.add_argument("--seconds", type=float, default=1200.0, help="virtual time (default %(default)s)")
    parser.add_argument("--load", type=float, default=0.35, help="of the engines' capacity (default %(default)s)")
    parser.add_argument("--engines", type=int, default=2, help="deployments (default %(default)s)")
    parser.add_argument("--coverage", type=float, default=0.95, help="to state (default %(default)s)")
    parser.add_argument("--quoted", type=float, default=0.3, help="share of clients with a quote (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of everything (default %(default)s)")
    parser.add_argument("--silent", action="store_true", help="engines that do not publish their load")
    add_shape_arguments(parser)


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    return await asyncio.to_thread(_card, options)


def _card(options: argparse.Namespace) -> Card:
    shape = shape_of(options)
    load, seconds = options.load * options.engines, options.seconds
    offers, rate = offers_of(options.trace, options.data, shape, load, seconds, options.seed)
    measured = measure(
        drifting(offers, seconds),
        shape,
        options.engines,
        options.seed,
        coverage=options.coverage,
        share=options.quoted,
        is_silent=options.silent,
    )
    found, quoted = measured.all_at_once(), measured.all_quoted()
    fixed = with_fixed_quantile(found, measured.at_once[PARTS[0]], options.coverage)
    windows, fixed_windows = window_coverages(found), window_coverages(fixed)
    results: dict[str, Value] = {
        "requests": len(found),
        "coverage": coverage_of(found),
        "coverage_window_min": min(windows),
        "bound_p50_ms": statistics.median(one.bound_s for one in found) * 1e3,
        "fixed_coverage": coverage_of(fixed),
        "fixed_coverage_window_min": min(fixed_windows),
        "fixed_bound_p50_ms": statistics.median(one.bound_s for one in fixed) * 1e3,
        "ttft_p95_ms": sorted(one.ttft_s for one in found)[int(0.95 * len(found))] * 1e3,
        "quoted": len(quoted),
        "quoted_coverage": coverage_of(quoted),
        "quoted_bound_p50_ms": statistics.median(one.bound_s for one in quoted) * 1e3,
        "quotes_refused": measured.num_refused,
        "quotes_not_reserved": measured.num_not_reserved,
    }
    synthetic = " (synthetic: drawn from recorded distributions)" if options.trace == "servegen" else ""
    return Card(
        bench="quote",
        arrivals=f"open loop, {options.trace}{synthetic}, {rate:.1f} per s, {options.load:g} x capacity, virtual time",
        results=results,
        notes=(
            *(_line(part, measured, fixed) for part in PARTS),
            f"windows of {_WINDOW} requests; stated coverage {options.coverage:g}; engine: modelled, {shape}",
        ),
        failed=measured.failure,
    )


def _line(part: str, measured: Measurements, fixed: Sequence[Measured]) -> str:
    """One part, for people."""
    before = sum(len(measured.at_once[name]) for name in PARTS[: PARTS.index(part)])
    found = measured.at_once[part]
    same = fixed[before : before + len(found)]
    bound_ms, fixed_ms = (statistics.median(one.bound_s for one in them) * 1e3 for them in (found, same))
    quoted = measured.quoted[part]
    return (
        f"{part}: {len(found)} requests, {coverage_of(found):.3f} within a median bound of {bound_ms:.0f} ms; fixed "
        f"quantile {coverage_of(same):.3f}, {fixed_ms:.0f} ms; {len(quoted)} quotes, {coverage_of(quoted):.3f}"
    )
