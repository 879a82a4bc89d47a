"""What log lines and traces cost: gateways on one core that show nothing, the usual and everything, each under the same
closed loop in turn, forwards and backwards, so that all see the same machine.

Shares are taken within a round, of which there are many short ones, and the middle one counts: a machine that others
use is not the same a second later. Whoever calls keeps himself, and so the collector, off the gateways' core: what a
collector takes is not the gateway's price.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from loadtests.clients.closed_loop import run_closed_loop
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import Script, Server, metric, start_gateway_with, start_upstream

_LEAD_IN_S = 0.6
"""Traces are sent half a second after their requests: for so long what one gateway left to show is the next one's
trouble, and none of its own has begun."""
_ROUND_S = 1.0
_MIN_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingCost:
    """What one gateway does with what it could show; medians over the repeats."""

    requests_per_s: float
    cpu_us: float
    """A request, all threads of the process."""
    throughput_cost_ratio: float
    """Share of the throughput of the one that shows nothing that is lost."""
    cpu_cost_ratio: float
    """How much more processor time it takes than that one."""


async def measure_tracing(
    upstream_url: str, request: bytes, *, num_connections: int, seconds: float, cores: set[int] | None
) -> dict[str, TracingCost]:
    """`unlogged`, `given` (every line, traces as sampled by default) and `all` (every trace), each in turn, for about
    `seconds` together; the collector gets the caller's cores. Raises ProcessFailed when no trace arrived."""
    async with AsyncExitStack() as stack:
        benches = {name: await stack.enter_async_context(Workbench()) for name in ("quiet", "told", "all")}
        collector = await start_upstream(benches["quiet"], Script(num_chunks=1))
        sent: dict[str, object] = {"telemetry.trace.otlp_endpoint": f"{collector.address.url}/v1/traces"}
        settings: dict[str, dict[str, object]] = {
            "quiet": {"telemetry.log.sample_ratio": 0.0},
            "told": sent,
            "all": {**sent, "telemetry.trace.sample_ratio": 1.0},
        }
        gateways = {
            name: await start_gateway_with(bench, _policy(upstream_url), settings=settings[name], cores=cores)
            for name, bench in benches.items()
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in gateways}
        names = list(gateways)
        for number in range(max(int(seconds / (len(names) * (_LEAD_IN_S + _ROUND_S))), _MIN_REPEATS)):
            for name in names if number % 2 == 0 else reversed(names):
                figures[name].append(await _round(gateways[name], request, num_connections))
        for name in ("told", "all"):
            if not await metric(gateways[name].admin, 'penstock_traces_total{end="exported"}'):
                raise ProcessFailed("a gateway that traces exported nothing: the comparison means nothing")
    return {name: _cost_of(repeats, figures["quiet"]) for name, repeats in figures.items()}


def _cost_of(repeats: list[tuple[float, float]], unlogged: list[tuple[float, float]]) -> TracingCost:
    pairs = list(zip(repeats, unlogged, strict=True))
    return TracingCost(
        requests_per_s=median(rate for rate, _ in repeats),
        cpu_us=median(us for _, us in repeats),
        throughput_cost_ratio=median(1.0 - own[0] / other[0] for own, other in pairs),
        cpu_cost_ratio=median(own[1] / other[1] - 1.0 for own, other in pairs),
    )


async def _round(gateway: Server, request: bytes, num_connections: int) -> tuple[float, float]:
    """(requests a second, CPU microseconds a request)."""
    await run_closed_loop(gateway.address, request, num_connections=num_connections, seconds=_LEAD_IN_S)
    before_s = gateway.process.cpu_s()
    loop = await run_closed_loop(gateway.address, request, num_connections=num_connections, seconds=_ROUND_S)
    if loop.num_failed:
        raise ProcessFailed(f"{loop.num_failed} requests failed ({loop.first_failure})")
    return loop.requests_per_s, (gateway.process.cpu_s() - before_s) * 1e6 / max(1, len(loop.latencies_s))


def _policy(upstream_url: str) -> dict[str, object]:
    deployment = {"id": "bench", "url": upstream_url, "model": "scripted", "limits": {"max_in_flight": 100_000}}
    return {"schema_version": 1, "deployments": [deployment]}
