"""The application on a local Ray cluster of two nodes: streams, cancellation, scaling, and a node that dies."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ray", reason="needs the extra: pip install 'penstock[ray]'")

import ray
from ray import serve
from ray.cluster_utils import Cluster

from deploy.ray.app import app
from deploy.ray.relaying import REPLICA_HEADER

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]  # warnings of Ray's own

ROOT = Path(__file__).parents[3]
MEMORY_BYTES = 100 * 1024 * 1024
FLAGS = ["--max-num-seqs=2", "--num-threads=1", "--kv-memory-bytes=33554432", "--no-compiled-steps"]
"""A small engine: two sequences at once, so that a few streams make a queue."""


@dataclass
class World:
    """Two nodes, and proxies on the first."""

    cluster: Any
    second: Any
    port: int
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    def deploy(self, **arguments: Any) -> None:
        """Deploy the application, in place of what ran before."""
        model = {} if "models" in arguments else {"model": "penstock-small"}
        given = {**model, "engine_flags": FLAGS, "num_cpus": 1, "drain_timeout_s": 5, **arguments}
        serve.run(app(given), name="engine", route_prefix="/", blocking=False)

    def num_replicas(self) -> int:
        """Running replicas."""
        found = serve.status().applications["engine"].deployments["Engine"].replica_states
        return int(found.get("RUNNING", 0))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"object_store_memory": MEMORY_BYTES, "num_cpus": 2, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=options)
        try:
            second = cluster.add_node(num_cpus=2, object_store_memory=MEMORY_BYTES)
            ray.init(address=cluster.address, log_to_driver=False)
            serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
            yield World(cluster, second, port)
        finally:
            serve.shutdown()
            ray.shutdown()
            cluster.shutdown()


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=world.url, timeout=httpx.Timeout(60.0), limits=limits) as client:
        yield client


def body(num_tokens: int, **fields: Any) -> dict[str, Any]:
    """A request for a stream of exactly so many tokens."""
    return {
        "model": "penstock-small",
        "messages": [{"role": "user", "content": "Tell me everything about the shop."}],
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "stream": True,
        **fields,
    }


@dataclass
class Seen:
    """One stream as its client saw it."""

    place: str = ""
    status: int = 0
    num_events: int = 0
    is_done: bool = False
    error: str = ""
    first: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def node(self) -> str:
        """The node that served it."""
        return self.place.partition(" ")[2]


async def stream(client: httpx.AsyncClient, num_tokens: int, seen: Seen | None = None) -> Seen:
    """Read a stream to its end, whatever that is."""
    seen = seen or Seen()
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body(num_tokens)) as response:
            seen.status, seen.place = response.status_code, response.headers.get(REPLICA_HEADER, "")
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    seen.is_done = True
                elif line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    seen.error = seen.error or json.dumps(event.get("error") or "").strip('"')
                    seen.num_events += 1
                    seen.first.set()
    except httpx.HTTPError as error:
        seen.error = type(error).__name__
    finally:
        seen.first.set()
    return seen


async def until(is_so: Callable[[], bool], limit_s: float) -> float:
    """Wait for a condition of the cluster, and return the seconds that it took."""
    began_at = time.monotonic()
    async with asyncio.timeout(limit_s):
        while not await asyncio.to_thread(is_so):
            await asyncio.sleep(0.2)
    return time.monotonic() - began_at


async def engine_load(world: World) -> int:
    """Sequences in all engines, by the figures that scaling reads."""
    handle = serve.get_app_handle("engine")
    return int((await handle.record_autoscaling_stats.remote())["num_seqs"])


async def until_sequences(world: World, num: int, limit_s: float) -> None:
    """Wait until the engines have so many sequences; their reports are up to a fraction of a second old."""
    async with asyncio.timeout(limit_s):
        while await engine_load(world) != num:
            await asyncio.sleep(0.05)


async def test_a_stream_comes_in_parts_and_a_client_that_leaves_ends_its_sequence(world: World) -> None:
    world.deploy(scaling={"max_replicas": 1})
    async with opened(world) as client:
        seen = await stream(client, 20)
        assert (seen.status, seen.is_done, seen.error) == (200, True, "")
        assert seen.num_events > 10
        began_at = time.monotonic()
        assert (await stream(client, 3000)).is_done
        whole_s = time.monotonic() - began_at
        async with client.stream("POST", "/v1/chat/completions", json=body(3000)) as response:
            lines = response.aiter_lines()  # held, because an iterator that is dropped closes the response
            while not (await anext(lines)).startswith("data: "):
                pass
            await until_sequences(world, 1, whole_s / 4)
        await until_sequences(world, 0, whole_s / 4)


async def test_models_are_loaded_on_demand_and_one_makes_room_for_another(world: World) -> None:
    world.deploy(models={"one": "penstock-small", "two": "penstock-small"}, scaling={"max_replicas": 1})
    async with opened(world) as client:
        for name, headers in (("one", {"serve_multiplexed_model_id": "one"}), ("two", {}), ("one", {})):
            answer = await client.post("/v1/chat/completions", json=body(5, model=name, stream=False), headers=headers)
            assert (answer.status_code, answer.json()["model"]) == (200, name)
        unknown = await client.post("/v1/chat/completions", json=body(5, model="three"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_replicas_follow_the_engines_queue_wait(world: World) -> None:
    scaling = {"max_replicas": 3, "target_wait_s": 0.2, "upscale_delay_s": 1, "downscale_delay_s": 3, "look_back_s": 3}
    world.deploy(scaling=scaling)
    async with opened(world) as client, AsyncExitStack() as exits:
        is_calm, is_over = asyncio.Event(), asyncio.Event()

        async def one_client(end: asyncio.Event) -> list[Seen]:
            found = []
            while not end.is_set():
                found.append(await stream(client, 300))
            return found

        tasks = [asyncio.create_task(one_client(end)) for end in (is_over, *[is_calm] * 23)]
        exits.callback(is_calm.set)
        exits.callback(is_over.set)
        await until(lambda: world.num_replicas() == 3, 120.0)
        is_calm.set()  # one client stays while replicas go
        await until(lambda: world.num_replicas() == 1, 90.0)
        is_over.set()
        seen = [one for found in await asyncio.gather(*tasks) for one in found]
        assert {(one.status, one.is_done, one.error) for one in seen} == {(200, True, "")}
        assert len({one.place for one in seen}) == 3, "each replica served"


async def test_a_node_that_dies_costs_its_own_streams_only(world: World) -> None:
    roomy = [*FLAGS, "--max-num-seqs=6", "--kv-memory-bytes=134217728"]  # no stream waits for another
    world.deploy(scaling={"min_replicas": 3, "max_replicas": 3}, engine_flags=roomy)
    await until(lambda: world.num_replicas() == 3, 120.0)
    async with opened(world) as client:
        seen = [Seen() for _ in range(6)]
        tasks = [asyncio.create_task(stream(client, 3000, one)) for one in seen]
        await asyncio.wait_for(asyncio.gather(*(one.first.wait() for one in seen)), 60.0)
        lost_node = world.second.node_id
        assert {one.node == lost_node for one in seen} == {True, False}, "both nodes serve"
        assert not any(one.is_done for one in seen)
        await asyncio.to_thread(world.cluster.remove_node, world.second, False)
        await asyncio.wait_for(asyncio.gather(*tasks), 90.0)
        for one in seen:
            if one.node == lost_node:
                assert (one.is_done, bool(one.error)) == (False, True), "a lost stream says so"
            else:
                assert (one.is_done, one.error) == (True, "")
        assert (await stream(client, 10)).is_done
        await until(lambda: world.num_replicas() == 2, 60.0)
        world.cluster.add_node(num_cpus=2, object_store_memory=MEMORY_BYTES)
        await until(lambda: world.num_replicas() == 3, 120.0)
