"""A gateway whose upstreams sit behind fault proxies, and what must hold after every fault."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.app.app import Gateway
from gateway.app.runtime import Surroundings
from gateway.config.sources import config_of
from gateway.deployments.health.ejection import EjectionRules, StallRules
from tests.gateway.scripted import Script, ScriptedUpstream, Wire, chunk, complete
from tests.gateway.stack import Reply, Stack, holding_nothing
from tests.support.fault_proxy import FaultProxy

QUICK = EjectionRules(consecutive_failures=3, first_s=0.2, longest_s=1.0, stall=StallRules(least_s=0.2))
"""The product's rules in a hurry."""

ENDS = {"completed", "cached", "shed", "rejected", "cancelled", "upstream_failed", "upstream_timeout", "failed"}
RETRY_RESERVE = 10
RETRY_RATIO = 0.1

_POLICY = """
schema_version: 1
deployments:
{deployments}
lanes: [{{id: interactive, weight: 8, max_queue: {max_queue}}}, {{id: batch, max_queue: {max_queue}}}]
tenants: {tenants}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{{select}, candidates: [{candidates}]}}
    timeouts:
      {{connect_ms: {connect_ms}, first_token_ms: {first_token_ms}, inter_token_ms: {inter_token_ms}, total_ms: 20000}}
{routes}
"""


class FaultStack(Stack):
    """One gateway in front of engines `e0`, `e1`, …, each behind `proxies` of the same number."""

    def __init__(
        self, gateway: Gateway, engines: list[ScriptedUpstream], proxies: list[FaultProxy], log: io.BytesIO
    ) -> None:
        super().__init__(gateway, engines[0], engines[-1], log)
        self.engines = engines
        self.proxies = proxies

    def live(self, number: int) -> Any:
        """The live state of one deployment."""
        assert self.gateway.snapshot is not None
        return self.gateway.snapshot.deployments[f"e{number}"]

    async def storm(self, body: Any, num: int, *, num_at_once: int = 16, **how: Any) -> list[Reply]:
        """So many requests, a few at a time."""
        gate = asyncio.Semaphore(num_at_once)

        async def one() -> Reply:
            async with gate:
                return await self.call(body, **how)

        return list(await asyncio.gather(*(one() for _ in range(num))))

    async def recorded(self, num: int) -> list[dict[str, Any]]:
        """The log lines of `num` requests, once they are all there."""
        for _ in range(600):
            if len(lines := self.lines()) >= num:
                return lines
            await asyncio.sleep(0.005)
        raise AssertionError(f"{len(self.lines())} of {num} requests were recorded")

    async def check_invariants(self, num_sent: int) -> None:
        """Every request ended once, nothing is held, connections are idle or closed, retries stored to their budget."""
        lines = await self.recorded(num_sent)
        await self.until_idle()
        self.check_integrity()
        assert len(lines) == num_sent, "every request is recorded exactly once"
        assert {line["outcome"] for line in lines} <= ENDS
        assert await self.metric("penstock_requests_total") == num_sent
        for _ in range(400):  # a probe may be under way
            pools = [self.live(number).client.snapshot() for number in range(len(self.engines))]
            if not any(pool.num_busy or pool.num_connecting for pool in pools):
                break
            await asyncio.sleep(0.005)
        else:
            raise AssertionError(f"connections are still in use: {pools}")
        retries = await self.metric("penstock_retries_total")
        assert retries <= RETRY_RESERVE + RETRY_RATIO * num_sent
        received = sum(len(engine.received) for engine in self.engines)
        hedges = await self.metric("penstock_hedges_total")
        assert received <= num_sent + retries + hedges, "an upstream saw a request nobody accounts for"


@asynccontextmanager
async def faulty(
    folder: Path,
    *,
    num: int = 2,
    select: str = "policy: first_available",
    ejection: EjectionRules = QUICK,
    edge: Mapping[str, object] | None = None,
    permits: int = 64,
    listen: str | None = None,
    drain_timeout_s: float = 30.0,
    around: Surroundings | None = None,
    **values: Any,
) -> AsyncIterator[FaultStack]:
    """A running gateway; on the way out nothing may be held."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedUpstream(folder / f"e{n}.sock")) for n in range(num)]
        proxies = [await stack.enter_async_context(FaultProxy(engine.path)) for engine in engines]
        numbers = {
            "connect_ms": 2000,
            "first_token_ms": 2000,
            "inter_token_ms": 2000,
            "max_queue": 200,
            "tenants": "[]",
            "routes": "",
        }
        names = ", ".join(f"e{n}" for n in range(num))
        deployments = "\n".join(
            f'  - {{id: e{n}, url: "{proxy.url}", model: tiny, limits: {{max_in_flight: {permits}}}}}'
            for n, proxy in enumerate(proxies)
        )
        text = _POLICY.format(deployments=deployments, candidates=names, select=select, **{**numbers, **values})
        (folder / "policy.yaml").write_text(text)
        config = config_of(
            {
                "public.listen": listen or f"unix:{folder}/public.sock",
                "admin.listen": f"unix:{folder}/admin.sock",
                "policy.document": folder / "policy.yaml",
                "process.runtime_dir": folder,
                "policy.poll_s": 0.05,
                "process.drain_timeout_s": drain_timeout_s,
                **(edge or {}),
            }
        )
        log = io.BytesIO()
        gateway = Gateway(config, log_stream=log, ejection=ejection, around=around)
        async with holding_nothing(FaultStack(gateway, engines, proxies, log)) as found:
            yield found


def streaming(*texts: str, pause_s: float = 0.0, first_s: float = 0.0) -> Script:
    """A script that streams these texts and ends as it should."""

    async def script(wire: Wire) -> None:
        await asyncio.sleep(first_s)
        await wire.start_stream()
        for text in texts:
            await wire.event(chunk(text))
            await asyncio.sleep(pause_s)
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    return script


def failing(code: int, **headers: str) -> Script:
    """A script that answers with a status."""

    async def script(wire: Wire) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.answer(b'{"error":{"message":"no","type":"x","param":null,"code":"y"}}', code, named)

    return script


async def frozen(wire: Wire) -> None:
    """A step loop that hangs: the request was taken, no token ever comes."""
    await wire.start_stream()
    await wire.is_gone.wait()


def text_of(body: bytes) -> str:
    """The text of a stream's content deltas."""
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    deltas = [json.loads(event).get("choices", [{}]) for event in events]
    return "".join(choices[0].get("delta", {}).get("content") or "" for choices in deltas if choices)


__all__ = ["ENDS", "QUICK", "FaultStack", "complete", "failing", "faulty", "frozen", "streaming", "text_of"]
