"""Counters of engines, read from their metrics at most every other second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admin.views.engine_facts import EngineCounts, EngineFacts
from gateway.deployments.health.ejection import EjectionRules
from gateway.deployments.live import LiveDeployment
from tests.gateway.routing.snapshots import ManualClock, snapshot_of

TEXT = """schema_version: 1
deployments: [{{id: a, url: 'unix:{folder}/a.sock', model: m}}, {{id: hosted, url: 'https://host/v1', model: n}}]
"""
METRICS = b"""# HELP engine_preemptions_total x
engine_preemptions_total 3
engine_prefix_cache_hits_tokens_total 1.5e3
engine_generation_tokens_total nonsense
engine_speculation_enabled 1.0
other_total 9
"""


class Engine:
    """Answers every request with `body`, and counts them."""

    def __init__(self) -> None:
        self.body = METRICS
        self.status = 200
        self.num_requested = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.num_requested += 1
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (self.status, len(self.body), self.body))
        writer.close()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    found = Engine()
    server = await asyncio.start_unix_server(found.serve, tmp_path / "a.sock")
    yield found
    server.close()


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[dict[str, LiveDeployment]]:
    made = dict(snapshot_of(TEXT.format(folder=tmp_path), EjectionRules()).deployments)
    yield made
    for one in made.values():
        await one.client.aclose()


async def test_an_engines_counters_are_read_and_a_hosted_api_is_not_requested(
    engine: Engine, live: dict[str, LiveDeployment]
) -> None:
    facts = EngineFacts(live.values, ManualClock())
    assert facts.of("a") is None
    await facts.refresh()
    assert facts.of("a") == EngineCounts(preemptions=3, prefix_hit_tokens=1500, speculates=True)
    assert facts.of("hosted") is None
    assert engine.num_requested == 1


async def test_it_is_requested_again_only_after_a_while(engine: Engine, live: dict[str, LiveDeployment]) -> None:
    clock = ManualClock()
    facts = EngineFacts(live.values, clock)
    for now, num_requested in ((0.0, 1), (1.9, 1), (2.0, 2)):
        clock.now = now
        await facts.refresh()
        assert engine.num_requested == num_requested


@pytest.mark.parametrize(("status", "body"), [(404, METRICS), (200, b"other_total 9\n"), (200, b"\xff\xfe")])
async def test_who_gives_no_such_metrics_is_no_engine_of_ours(
    engine: Engine, live: dict[str, LiveDeployment], status: int, body: bytes
) -> None:
    engine.status, engine.body = status, body
    facts = EngineFacts(live.values, ManualClock())
    await facts.refresh()
    assert facts.of("a") is None
    await facts.aclose()
