"""What log lines and traces cost: gateways on one core that tell nothing, the usual and everything, each under the same
closed loop in turn, so that all see the same machine."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from loadtests.closed_loop import run_closed_loop
from loadtests.processes import ProcessFailed, Workbench
from loadtests.stack import Script, Server, metric, start_gateway_with, start_upstream

_ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one gateway does with what it could tell; medians over the rounds."""

    requests_per_s: float
    cpu_us: float


async def measure_tracing(
    upstream_url: str, request: bytes, *, num_connections: int, seconds: float, cores: set[int] | None
) -> dict[str, Told]:
    """`quiet`, `told` (every line, traces as sampled by default) and `all` (every trace), each in turn, for `seconds`
    together. Raises ProcessFailed when no trace arrived."""
    async with AsyncExitStack() as stack:
        benches = {name: await stack.enter_async_context(Workbench()) for name in ("quiet", "told", "all")}
        collector = await start_upstream(benches["quiet"], Script(num_chunks=1))
        sent: dict[str, object] = {"otlp_endpoint": f"{collector.address.url}/v1/traces"}
        settings: dict[str, dict[str, object]] = {
            "quiet": {"log_sample_ratio": 0.0},
            "told": sent,
            "all": {**sent, "trace_sample_ratio": 1.0},
        }
        gateways = {
            name: await start_gateway_with(bench, _policy(upstream_url), settings=settings[name], cores=cores)
            for name, bench in benches.items()
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in gateways}
        for _ in range(_ROUNDS + 1):
            for name, gateway in gateways.items():
                round_s = seconds / (len(gateways) * (_ROUNDS + 1))
                figures[name].append(await _round(gateway, request, num_connections, round_s))
        for name in ("told", "all"):
            if not await metric(gateways[name].admin, 'penstock_traces_total{end="exported"}'):
                raise ProcessFailed("a gateway that traces exported nothing: the comparison means nothing")
    # The first round of each warms it up.
    return {
        name: Told(requests_per_s=median(rate for rate, _ in rounds[1:]), cpu_us=median(us for _, us in rounds[1:]))
        for name, rounds in figures.items()
    }


async def _round(gateway: Server, request: bytes, num_connections: int, seconds: float) -> tuple[float, float]:
    """(requests a second, CPU microseconds a request)."""
    before_s = gateway.process.cpu_s()
    loop = await run_closed_loop(gateway.address, request, num_connections=num_connections, seconds=seconds)
    if loop.num_failed:
        raise ProcessFailed(f"{loop.num_failed} requests failed ({loop.first_failure})")
    return loop.requests_per_s, (gateway.process.cpu_s() - before_s) * 1e6 / max(1, len(loop.latencies_s))


def _policy(upstream_url: str) -> dict[str, object]:
    deployment = {"id": "bench", "url": upstream_url, "model": "scripted", "limits": {"max_in_flight": 100_000}}
    return {"schema_version": 1, "deployments": [deployment]}
