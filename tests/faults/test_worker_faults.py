"""Gateways of several processes on one port: what holds for the machine, and what the death of one costs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from tests.faults.processes import GatewayProcess, gateway_process, steady_load, until_more
from tests.faults.stack import streaming
from tests.faults.up import POLICY as UP_POLICY
from tests.faults.up import up_process
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Reply, chat, encode

PATIENCE_S = 20.0
NUM_WORKERS = 2
NUM_CLIENTS = 8
LIMITED = """
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 4}}}}]
lanes: [{{id: interactive, max_queue: 6}}]
"""


class WorkersProcess:
    """A running gateway with workers."""

    def __init__(self, gateway: GatewayProcess, port: int, folder: Path) -> None:
        self.gateway = gateway
        self.port = port
        self._folder = folder

    def pids(self) -> dict[str, int]:
        """The newest process of each name."""
        return {line["process"]: line["pid"] for line in self.gateway.lines("process_started")}

    async def admin(self, path: str) -> httpx.Response:
        """GET from the admin listener."""
        transport = httpx.AsyncHTTPTransport(uds=str(self._folder / "a.sock"))
        async with httpx.AsyncClient(transport=transport, timeout=10, base_url="http://localhost") as client:
            return await client.get(path)

    async def change(self, path: str, document: dict[str, Any]) -> httpx.Response:
        """POST to the admin listener with the token of its file."""
        token = (self._folder / "admin.token").read_text().strip()
        transport = httpx.AsyncHTTPTransport(uds=str(self._folder / "a.sock"))
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, timeout=10, base_url="http://localhost") as client:
            return await client.post(path, json=document, headers=headers)

    async def metric(self, pattern: str) -> float:
        """The sum of the samples whose line begins like the pattern."""
        text = (await self.admin("/metrics")).text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(pattern, line))

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until another one serves."""
        num_before = len(self.gateway.lines("process_started"))
        os.kill(self.pids()[name], signal.SIGKILL)
        async with asyncio.timeout(30):
            while len(self.gateway.lines("process_started")) == num_before:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def served(
    folder: Path, engine: ScriptedUpstream, settings: dict[str, Any] | None = None, **how: Any
) -> AsyncIterator[WorkersProcess]:
    """A gateway with workers in front of an engine."""
    settings = {"process.workers": NUM_WORKERS, **(settings or {})}
    async with gateway_process(folder, "a", engine.path, listen="127.0.0.1:0", settings=settings, **how) as gateway:
        started = await gateway.until("started")
        yield WorkersProcess(gateway, int(started["listening"]["public"][0].rpartition(":")[2]), folder)


async def call(port: int, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(encode(chat(**fields), headers=headers or {}))
        return Reply(await asyncio.wait_for(reader.read(), 60))
    finally:
        writer.close()


async def test_a_worker_killed_under_load_costs_its_own_connections_only(tmp_path: Path) -> None:
    """Fault row 49: kill -9 of one of two workers while all clients call; limits and counts stay right."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, served(tmp_path, engine) as workers:
        async with steady_load(workers.port, NUM_CLIENTS) as clients:
            await until_more(clients, may_fail=True)
            while not (reported := await workers.metric(r"penstock_requests_total\{")):
                await asyncio.sleep(0.05)
            await workers.kill("worker-1")
            await until_more(clients, may_fail=True)
        failures = [failure for client in clients for failure in client.failures]
        num_good = sum(client.num_good for client in clients)
        assert len(failures) <= NUM_CLIENTS // NUM_WORKERS  # least connections: each worker had half of them
        assert all("Reset" in failure or "IncompleteRead" in failure for failure in failures), failures
        assert all(client.num_good for client in clients)

        assert await workers.metric("penstock_in_flight") == 0
        assert await workers.metric("penstock_concurrency_limit") == 1000
        counted = await workers.metric(r"penstock_requests_total\{")
        assert reported <= counted <= num_good + len(failures)  # a killed worker loses its last second alone


async def test_all_workers_are_one_gateway_to_operators(tmp_path: Path) -> None:
    """One admin listener has the metrics, the live state and every request of all workers."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, served(tmp_path, engine) as workers:
        replies = await asyncio.gather(*(call(workers.port) for _ in range(20)))
        assert {reply.status for reply in replies} == {200}
        assert await workers.metric(r'penstock_requests_total\{.*outcome="completed"') == 20
        assert await workers.metric(r"penstock_total_seconds_count") == 20

        request_ids = [reply.headers["x-request-id"] for reply in replies]
        found = [(await workers.admin(f"/admin/api/requests/{request_id}")) for request_id in request_ids[:6]]
        assert [one.status_code for one in found] == [200] * 6
        assert len({one.json()["request"]["replica"] for one in found}) == NUM_WORKERS

        overview = (await workers.admin("/admin/api/overview?window=60")).json()
        assert overview["requests"]["count"] == 20
        assert overview["replicas"]["is_alone"]
        assert len(overview["replicas"]["names"]) == 1


async def test_permits_and_queues_hold_for_all_workers_together(tmp_path: Path) -> None:
    """Four permits and six places in the queue, whichever worker a request comes to."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        engine.otherwise = streaming("a", pause_s=0.5)
        async with served(tmp_path, engine, policy_text=LIMITED) as workers:
            replies = await asyncio.gather(*(call(workers.port, stream=True) for _ in range(40)))
            assert engine.most_at_once == 4
            statuses = sorted(reply.status for reply in replies)
            num_good = statuses.count(200)
            assert 10 <= num_good <= 12, statuses  # each worker may overlook one entry of another's queue
            assert statuses.count(503) == 40 - num_good


QUOTA = """
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 1000}}}}]
tenants: [{{id: shop, keys: [{{id: k, sha256: "{digest}"}}], limits: {{requests_per_min: 30}}}}]
"""


async def test_a_rate_limit_holds_for_all_workers_together(tmp_path: Path) -> None:
    """Thirty requests a minute are thirty, and all thirty may be used, whichever worker a request comes to."""
    async with (
        ScriptedUpstream(tmp_path / "engine.sock") as engine,
        served(
            tmp_path, engine, policy=QUOTA.format(engine=engine.path, digest=sha256(b"sk-shop").hexdigest())
        ) as workers,
    ):
        statuses: list[int] = []
        key = {"authorization": "Bearer sk-shop"}
        for _ in range(16):
            statuses += [
                reply.status for reply in await asyncio.gather(*(call(workers.port, headers=key) for _ in range(5)))
            ]
            await asyncio.sleep(0.1)
        assert statuses.count(200) == 30, statuses
        assert statuses.count(429) == 80 - 30


CACHED = """
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 1000}}}}]
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [only]}}
    cache: {{mode: exact}}
"""


async def send_to_both(workers: WorkersProcess, text: str, num: int = 12) -> list[Reply]:
    """Send one question several times, each on a connection of its own, so that all workers get some."""
    messages = [{"role": "user", "content": text}]
    return [await call(workers.port, messages=messages, temperature=0) for _ in range(num)]


async def shared_response(workers: WorkersProcess) -> None:
    """Wait until the file that workers share holds a response, which is written after the answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not await workers.metric("penstock_cache_entries"):
        assert time.monotonic() < deadline, "no response was stored"
        await asyncio.sleep(0.05)


async def test_workers_share_cached_responses_and_a_purge(tmp_path: Path) -> None:
    """One answer of the engine serves all workers, also after a restart of one; a purge reaches all of them."""
    async with (
        ScriptedUpstream(tmp_path / "engine.sock") as engine,
        served(tmp_path, engine, policy_text=CACHED) as workers,
    ):
        await send_to_both(workers, "first", 1)
        await shared_response(workers)
        replies = await send_to_both(workers, "first")
        assert len(engine.received) == 1
        assert {reply.headers["x-penstock-cache"] for reply in replies} == {"hit-exact"}
        await workers.kill("worker-1")
        await send_to_both(workers, "first")
        assert len(engine.received) == 1
        assert await workers.metric("penstock_cache_entries") == 1

        purged = await workers.change("/admin/api/cache/purge", {"tenant": "dev", "dry_run": False})
        assert purged.status_code == 200, purged.text
        deadline = time.monotonic() + PATIENCE_S
        while len(engine.received) < 2:
            assert time.monotonic() < deadline, "a purged response is still served"
            await send_to_both(workers, "first", 1)
        await shared_response(workers)
        await send_to_both(workers, "first")
        assert len(engine.received) == 2


async def test_the_control_process_may_die_while_workers_serve(tmp_path: Path) -> None:
    """No request fails, and the next control process has the metrics and the permits of all."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, served(tmp_path, engine) as workers:
        async with steady_load(workers.port, NUM_CLIENTS) as clients:
            await until_more(clients, may_fail=True)
            await workers.kill("control")
            await until_more(clients, may_fail=True)
        assert not [failure for client in clients for failure in client.failures]
        num_good = sum(client.num_good for client in clients)
        assert await workers.metric(r"penstock_requests_total\{") == num_good
        assert await workers.metric("penstock_in_flight") == 0


async def test_a_new_policy_reaches_all_workers(tmp_path: Path) -> None:
    """SIGHUP reads the file in every process at once."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, served(tmp_path, engine) as workers:
        policy = tmp_path / "a.yaml"
        policy.write_text(policy.read_text().replace("model: tiny", "model: other"))
        workers.gateway.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(20):
            while len(workers.gateway.lines("policy_in_force")) < 2 * (NUM_WORKERS + 1):
                await asyncio.sleep(0.02)
        await asyncio.gather(*(call(workers.port) for _ in range(8)))
        assert {received.json["model"] for received in engine.received} == {"other"}


async def test_sigterm_drains_all_workers_together(tmp_path: Path) -> None:
    """Streams under way at all workers end whole, new connections are refused, the exit code is 0."""
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        engine.otherwise = streaming(*"abcde", pause_s=0.3)
        async with served(tmp_path, engine) as workers:
            streams = [asyncio.create_task(call(workers.port, stream=True)) for _ in range(20)]
            async with asyncio.timeout(20):
                while len(engine.received) < 20:
                    await asyncio.sleep(0.02)
            workers.gateway.terminate()
            replies = await asyncio.gather(*streams)
            assert await workers.gateway.ended() == 0
            assert all(reply.body.endswith(b"data: [DONE]\n\n") for reply in replies)
            stopped = workers.gateway.lines("stopped")
            assert len(stopped) == NUM_WORKERS + 1
            assert not any(line["cancelled"] for line in stopped)


async def test_up_has_workers_whose_supervisor_may_die(tmp_path: Path) -> None:
    """`penstock up` restarts a killed supervisor; its sockets refuse no connection meanwhile, and all ends in order."""
    folder = tmp_path / "here"
    folder.mkdir()
    env = {"PENSTOCK_PROCESS_WORKERS": str(NUM_WORKERS)}
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine:
        (folder / "policy.yaml").write_text(UP_POLICY.format(engine=engine.path))
        async with up_process(folder, "--policy", "policy.yaml", env=env) as up:
            await up.ready()
            assert [line["workers"] for line in up.lines("started")] == [NUM_WORKERS]
            assert (await call(up.port, model="tiny")).status == 200
            await up.kill_gateway()
            assert (await call(up.port, model="tiny")).status == 200  # waits in the queue until the gateway is back
            await up.until(lambda: len(up.lines("started")) == 2)
            assert await up.stop() == 0


QUOTED = """
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 16}}}}]
quotes: {{hold_ms: 20000, max_held: 8}}
"""


async def test_a_quote_is_redeemed_at_any_worker(tmp_path: Path) -> None:
    """Every connection of a client may reach another worker; the permit that its quote reserved goes along."""
    async with (
        ScriptedUpstream(tmp_path / "engine.sock") as engine,
        served(tmp_path, engine, policy_text=QUOTED) as workers,
    ):
        uses = []
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{workers.port}", timeout=30) as client:
            for _ in range(12):
                body = chat("only", stream=True, max_tokens=8)
                quote = (await client.post("/v1/quote", json=body)).json()  # on one connection: always one worker
                assert quote["reserved"], quote
                content = httpx.Request("POST", "http://x/", json=body).content
                reader, writer = await asyncio.open_connection("127.0.0.1", workers.port)
                head = (
                    f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                    f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
                    f"x-penstock-quote: {quote['quote']}\r\n\r\n"
                )
                writer.write(head.encode() + content)
                reply = Reply(await asyncio.wait_for(reader.read(), 60))
                writer.close()
                assert reply.status == 200
                uses.append(reply.headers["x-penstock-quote"])
        assert uses == ["redeemed"] * 12
        assert await workers.metric("penstock_quotes_held") == 0
        assert await workers.metric("penstock_in_flight") == 0
        served_by = await workers.metric(r'penstock_quote_uses_total\{use="redeemed"')
        assert served_by == 12


async def test_the_connections_of_one_address_are_bounded_over_all_workers(tmp_path: Path) -> None:
    """Each worker has a part of a client's connections; together they are no more than the setting allows."""
    settings = {"edge.connections.max_per_ip": 3}
    async with ScriptedUpstream(tmp_path / "engine.sock") as engine, served(tmp_path, engine, settings) as workers:
        opened = [await asyncio.open_connection("127.0.0.1", workers.port) for _ in range(3)]
        for reader, writer in opened:
            writer.write(encode(chat()).replace(b"connection: close\r\n", b""))
            assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"HTTP/1.1 200")
        assert b"no connection left" in await _refusal(workers.port)
        opened[0][1].close()
        async with asyncio.timeout(PATIENCE_S):
            while not await _is_served(workers.port):  # the close travels to the worker
                await asyncio.sleep(0.01)
        for _, writer in opened[1:]:
            writer.close()


async def _is_served(port: int) -> bool:
    """Return whether a request on a connection of its own gets an answer; a connection too many is reset."""
    try:
        return (await call(port)).status == 200
    except ConnectionError:
        return False


async def _refusal(port: int) -> bytes:
    """What a new connection is sent before any request; empty for one that is admitted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await asyncio.wait_for(reader.read(), 0.5)
    except TimeoutError:
        return b""
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_quote_of_a_worker_that_was_killed_still_counts_without_its_permit(tmp_path: Path) -> None:
    """The token is valid at every worker of the gateway; what the dead one held is free."""
    async with (
        ScriptedUpstream(tmp_path / "engine.sock") as engine,
        served(tmp_path, engine, policy_text=QUOTED) as workers,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{workers.port}", timeout=30) as client,
    ):
        body = chat("only", stream=True, max_tokens=8)
        quote = (await client.post("/v1/quote", json=body)).json()
        assert quote["reserved"]
        for name in ("worker-1", "worker-2"):
            await workers.kill(name)
        used = {"x-penstock-quote": quote["quote"]}
        reply = None
        async with asyncio.timeout(PATIENCE_S):
            while reply is None:
                try:
                    reply = await client.post("/v1/chat/completions", json=body, headers=used)
                except httpx.TransportError:  # its connection ended with the worker
                    await asyncio.sleep(0.05)
        assert (reply.status_code, reply.headers["x-penstock-quote"]) == (200, "unreserved")
        assert await workers.metric("penstock_in_flight") == 0
        assert await workers.metric("penstock_quotes_held") == 0
