"""Three gateways that share one store, under load, and what must be right after every fault."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from gateway.access.local_token import read_token
from gateway.app.connections.store_opening import open_store
from gateway.store.address import parse_store
from gateway.store.base import StoreUnavailable
from gateway.store.meter import Draw, Meter, Period
from tests.faults.processes import GatewayProcess, gateway_process
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Reply, encode

NUM_REPLICAS: Final = 3
PER_MINUTE: Final = 600
"""Requests that each tenant with a limit may send in a minute."""
TENANTS: Final = tuple(f"metered{number}" for number in range(6))
TOLERANCE: Final = 0.01
PATIENCE_S: Final = 60.0
FREE_CALLS: Final = 10
"""Calls whose time does not count where the time of something is measured by calls."""
ORDINARY: Final = ("gateway", "gateway")
MISSES_S: Final = 1.0
"""Longest time after which an entry of one replica is a hit at the others."""
POLLS_S: Final = 0.5
"""Time for finding out, on a busy machine."""

Until = Callable[[], Awaitable[bool]]


def key_of(tenant: str) -> dict[str, str]:
    """The headers of a tenant of the policy document."""
    return {"authorization": f"Bearer sk-{tenant}"}


def policy_of(engine: Path) -> str:
    """The policy that every store begins with."""
    keys = {tenant: sha256(f"sk-{tenant}".encode()).hexdigest() for tenant in ("free", *TENANTS)}
    limits = dict.fromkeys(TENANTS, f", limits: {{requests_per_min: {PER_MINUTE}}}")
    tenants = "\n".join(
        f'  - {{id: {tenant}, keys: [{{id: k, sha256: "{digest}"}}]{limits.get(tenant, "")}}}'
        for tenant, digest in keys.items()
    )
    return f"""
schema_version: 1
deployments: [{{id: only, url: "unix:{engine}", model: tiny, limits: {{max_in_flight: 1000}}}}]
tenants:
{tenants}
routes:
  - id: cached
    match: {{models: [cached]}}
    select: {{candidates: [only]}}
    cache: {{mode: exact, ttl_s: 3600}}
  - id: plain
    match: {{models: [plain]}}
    select: {{candidates: [only]}}
"""


class Replica:
    """One gateway of a fleet."""

    def __init__(self, process: GatewayProcess, port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self.client = Client(port)

    async def admin(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Call the admin API."""
        token = await asyncio.to_thread(read_token, self.folder / "admin.token")
        given = {"authorization": f"Bearer {token}", **{name.replace("_", "-"): each for name, each in headers.items()}}
        return await self._call_admin(encode(body, path=f"/admin/api/{path}", method=method, headers=given))

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples with these labels."""
        text = (await self._call_admin(encode(path="/metrics", method="GET"))).body.decode()
        marks = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(mark in line for mark in marks))

    async def _call_admin(self, request: bytes) -> Reply:
        reader, writer = await asyncio.open_unix_connection(str(self.folder / "gateway.sock"))
        try:
            writer.write(request)
            return Reply(await asyncio.wait_for(reader.read(), 10))
        finally:
            writer.close()

    async def chat(self, model: str, text: str, tenant: str = "free", key: str | None = None) -> Reply:
        """Send one request."""
        headers = key_of(tenant) if key is None else {"authorization": f"Bearer {key}"}
        return await self.client.chat(model, text, headers)


class Client:
    """Sends one request after the other over a connection that it keeps."""

    def __init__(self, port: int | Callable[[], list[int]]) -> None:
        """`port` may return the ports to try, the first that accepts is used: so a load balancer does."""
        self._ports = port if callable(port) else lambda: [port]
        self._turn = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def chat(self, model: str, text: str, headers: Mapping[str, str]) -> Reply:
        """Send a question."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        async with self._turn:
            try:
                return await asyncio.wait_for(
                    self._send(encode(body, headers={"connection": "keep-alive", **headers})), 10
                )
            except BaseException:
                self.close()
                raise

    async def _send(self, request: bytes) -> Reply:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await self._connect()
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        reply = Reply(head + await self._reader.readexactly(length))
        if reply.headers.get("connection") == "close":
            self.close()
        return reply

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for port in self._ports():
            with suppress(ConnectionRefusedError):  # it is being replaced: the next one takes the request
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError("no replica accepts connections")

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._reader = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one request."""

    at: float
    kind: str
    status: int
    cache: str
    error: str = ""


class Load:
    """Steady traffic on every replica: responses that are cached, requests of a tenant with a limit, others."""

    def __init__(self, fleet: Fleet, tenant: str) -> None:
        self.tenant = tenant
        self.seen: list[Seen] = []
        self._fleet = fleet
        self._stop = asyncio.Event()

    async def run(self, pause_s: float) -> None:
        """Send until stopped."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(self._fleet.replicas)):
                port = partial(self._fleet.ports, number)
                tasks.create_task(self._repeat(port, "cached", "cached", "hot", "free", pause_s))
                tasks.create_task(self._repeat(port, "plain", "plain", "anything", "free", pause_s))
                tasks.create_task(self._repeat(port, "metered", "plain", "anything", self.tenant, pause_s / 2))

    async def _repeat(
        self, port: Callable[[], list[int]], kind: str, model: str, text: str, tenant: str, pause_s: float
    ) -> None:
        client = Client(port)
        clock = asyncio.get_running_loop().time
        while not self._stop.is_set():
            try:
                reply = await client.chat(model, text, key_of(tenant))
            except (OSError, EOFError, TimeoutError) as error:
                self.seen.append(Seen(clock(), kind, 0, "", repr(error)))
                continue
            error_text = "" if reply.status == 200 else reply.body[:200].decode()
            cache = reply.headers.get("x-penstock-cache", "")
            self.seen.append(Seen(clock(), kind, reply.status, cache, error_text))
            await asyncio.sleep(pause_s)
        client.close()

    def stop(self) -> None:
        """Let every client finish its request."""
        self._stop.set()

    async def until_more(self, kind: str = "plain", num: int = 30) -> None:
        """Wait for further answers."""
        before = self.num(kind)
        await self._fleet.until(lambda: self.num(kind) >= before + num, "more answers")

    def num(self, kind: str, status: int = 200) -> int:
        """Number of requests with that end."""
        return sum(1 for one in self.seen if one.kind == kind and one.status == status)

    @property
    def failures(self) -> list[Seen]:
        """Whatever should not have been: only a tenant with a limit may be refused, and only for its limit."""
        return [
            one
            for one in self.seen
            if one.status != 200 and not (one.kind == "metered" and one.status == 429 and "rate_limit" in one.error)
        ]

    @property
    def misses(self) -> list[Seen]:
        """Requests of the cached response that were not hits."""
        return [one for one in self.seen if one.kind == "cached" and one.cache != "hit-exact"]


class Fleet:
    """The replicas, their engine and their store."""

    def __init__(self, folder: Path, engine: ScriptedUpstream, store: str, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self.engine = engine
        self.store = store
        self.replicas: list[Replica] = []
        self._settings = settings
        self._stack = AsyncExitStack()
        self._numbers = itertools.count()
        self._good_key = self._dead_key = ""
        self.num_changes = 0
        """Changes that were acknowledged."""

    def ports(self, first: int) -> list[int]:
        """The replicas' ports, beginning with one."""
        num = len(self.replicas)
        return [self.replicas[(first + number) % num].port for number in range(num)]

    async def start_one(
        self, *, program: tuple[str, ...] = ORDINARY, listen: str = "127.0.0.1:0", **settings: object
    ) -> Replica:
        """Start one more gateway."""
        folder = self.folder / f"replica{next(self._numbers)}"
        folder.mkdir()
        process = await self._stack.enter_async_context(
            gateway_process(
                folder,
                "gateway",
                self.engine.path,
                listen=listen,
                policy=policy_of(self.engine.path),
                program=program,
                settings={"store.address": self.store, "policy.source": "store", **self._settings, **settings},
            )
        )
        port = int((await process.until("started"))["listening"]["public"][0].rpartition(":")[2])
        replica = Replica(process, port, folder)
        self.replicas.append(replica)
        return replica

    async def replace(self, old: Replica, *, program: tuple[str, ...] = ORDINARY) -> Replica:
        """Start another gateway, then stop this one in order, as a rolling restart does."""
        new = await self.start_one(program=program)
        old.client.close()
        self.replicas.remove(old)  # as a balancer does that reads `/readyz`; connections that are open go on
        old.process.terminate()
        assert await old.process.ended() == 0
        return new

    async def aclose(self) -> None:
        """Kill what still runs."""
        for replica in self.replicas:
            replica.client.close()
        await self._stack.aclose()

    async def prepare(self) -> None:
        """Make a key, a revoked key, and the cached response, and wait until every replica has them."""
        first = self.replicas[0]
        self._good_key = (await self._change(first, "POST", "keys", {"tenant": "free", "id": "good"})).json["key"]
        self._dead_key = (await self._change(first, "POST", "keys", {"tenant": "free", "id": "dead"})).json["key"]
        await self._change(first, "POST", "keys/free/dead/revoke", {"reason": "a test"})
        await self._share("hot")
        await self.check_keys()

    @asynccontextmanager
    async def load(self, tenant: str, *, pause_s: float = 0.04) -> AsyncIterator[Load]:
        """Steady traffic while the body runs; the tenant's minute begins with it."""
        load = Load(self, tenant)
        running = asyncio.create_task(load.run(pause_s))
        try:
            await load.until_more(num=6)
            yield load
        finally:
            load.stop()
            await running

    # Waiting

    async def until(self, is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for a condition."""
        await self.until_async(_always(is_so), what, timeout_s)

    async def until_async(self, is_so: Until, what: str, timeout_s: float = PATIENCE_S) -> float:
        """Wait for a condition that takes calls; return the seconds that it took, those of a few calls left out.

        On a machine that has other work the calls take longer than what they wait for.
        """
        clock = asyncio.get_running_loop().time
        began, called_s, num_calls = clock(), 0.0, 0
        while True:
            called_at = clock()
            is_over = await is_so()
            called_s, num_calls = called_s + clock() - called_at, num_calls + 1
            if is_over:
                return max(clock() - began - FREE_CALLS * called_s / num_calls, 0.0)
            if clock() > began + timeout_s:
                raise AssertionError(f"{what}: not within {timeout_s:g} s\n{self.troubles()}")
            await asyncio.sleep(0.02)

    async def until_each(
        self, is_so: Callable[[Replica], Awaitable[bool]], what: str, timeout_s: float = PATIENCE_S
    ) -> float:
        """Wait until something holds at every replica; return the seconds that it took."""
        took = await asyncio.gather(
            *(self.until_async(lambda one=one: is_so(one), what, timeout_s) for one in self.replicas)  # type: ignore[misc]
        )
        return max(took)

    async def until_store_is_up(self) -> None:
        """Wait until every replica has its store back."""
        await self.until_each(has_store, "the store is up")

    def troubles(self) -> str:
        """The last warnings of each replica, for a test that fails."""
        found = []
        for replica in self.replicas:
            lines = (replica.folder / "gateway.log").read_text().splitlines()
            found += [f"{replica.folder.name}: {line[:400]}" for line in lines if '"request"' not in line][-12:]
        return "\n".join(found)

    # What must be right

    async def check(self, load: Load) -> None:
        """Check the invariants, with the store at hand and no load."""
        assert load.failures == [], f"{load.failures[:5]} of {len(load.seen)}\n{self.troubles()}"
        assert load.misses == [], f"{load.misses[:5]}"
        await self.until_store_is_up()
        await self.until_each(reads_audit_log, "policy, keys and audit log, which have connections of their own")
        await self.check_quota(load)
        await self.check_policy()
        await self.check_keys()
        await self.check_cache()
        await self.check_audit_log()

    async def check_quota(self, load: Load) -> None:
        """The store counts what was admitted, and that was no more than the limit."""
        admitted = load.num("metered")
        assert 0 < admitted <= PER_MINUTE * (1 + TOLERANCE)
        store = open_store(parse_store(self.store), timeout_s=2.0)
        meter = Meter("requests_per_min", Period.MINUTE, PER_MINUTE)
        counted = -1

        async def is_right() -> bool:
            nonlocal counted
            try:
                found = await store.exchange(f"quota.{load.tenant}", "a test", [Draw(meter)])
            except StoreUnavailable:
                return False
            counted = PER_MINUTE - found.grants[0].remaining
            return abs(counted - admitted) <= PER_MINUTE * TOLERANCE

        try:
            await self.until_async(is_right, "the store's count")
        except AssertionError as error:
            raise AssertionError(f"{admitted} were admitted, the store counts {counted}: {error}") from None
        finally:
            await store.aclose()

    async def check_policy(self) -> None:
        """A change at one replica is in force at all of them."""
        first = self.replicas[0]
        shown = (await first.admin("GET", "policy")).json
        document = shown["document"].rstrip() + f"\n# change {self.num_changes}\n"
        body = {"document": document, "reason": "a test"}
        applied = await self._change(first, "PUT", "policy", body, if_match=shown["etag"])
        etag = applied.json["etag"]

        async def has_it(replica: Replica) -> bool:
            return bool((await replica.admin("GET", "policy")).json["etag"] == etag)

        await self.until_each(has_it, "the policy")

    async def check_keys(self) -> None:
        """A key that was made is good everywhere, and one that was revoked nowhere."""

        async def are_right(replica: Replica) -> bool:
            good = await replica.chat("plain", "hi", key=self._good_key)
            dead = await replica.chat("plain", "hi", key=self._dead_key)
            return (good.status, dead.status) == (200, 401)

        await self.until_each(are_right, "the keys")
        assert all([await are_right(replica) for replica in self.replicas])

    async def check_cache(self) -> None:
        """What one replica stores now is a hit at the others within a second."""
        took_s = await self._share(f"question {next(self._numbers)}")
        assert took_s <= MISSES_S + POLLS_S, f"{took_s:.2f} s"

    async def check_audit_log(self) -> None:
        """Every change that was acknowledged has its line, and the chain holds at every replica."""
        for replica in self.replicas:
            assert (await replica.admin("GET", "audit/verify")).json["ok"]
        listed = (await self.replicas[0].admin("GET", "audit?newest=true&limit=500")).json["entries"]
        assert len([entry for entry in listed if entry["author"] == "local"]) == self.num_changes

    async def _share(self, text: str) -> float:
        """Have one replica store a response, and return the seconds until it is a hit at all of them."""
        before = {replica.port: await replica.metric("penstock_cache_entries") for replica in self.replicas}
        stored = await self.replicas[-1].chat("cached", text)
        assert stored.headers["x-penstock-cache"] == "miss", stored.headers

        async def has_entry(replica: Replica) -> bool:
            return await replica.metric("penstock_cache_entries") > before[replica.port]

        took_s = await self.until_each(has_entry, "a cached response of another replica")
        found = [(await replica.chat("cached", text)).headers["x-penstock-cache"] for replica in self.replicas]
        assert set(found) == {"hit-exact"}
        return took_s

    async def _change(self, replica: Replica, method: str, path: str, body: Any, **headers: str) -> Reply:
        reply = await replica.admin(method, path, body, **headers)
        assert reply.status in (200, 201), f"{path}: {reply.status} {reply.body[:500]!r}\n{self.troubles()}"
        self.num_changes += 1
        return reply


@asynccontextmanager
async def fleet_over(
    store: str, folder: Path, *, num: int = NUM_REPLICAS, programs: tuple[tuple[str, ...], ...] = (), **settings: object
) -> AsyncIterator[Fleet]:
    """A prepared fleet on a store; `programs` replaces the gateway's own program of the first replicas."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    async with ScriptedUpstream(folder / "engine.sock") as engine:
        fleet = Fleet(folder, engine, store, named)
        try:
            each = [*programs, *[ORDINARY] * (num - len(programs))]
            await asyncio.gather(*(fleet.start_one(program=program) for program in each))
            await fleet.prepare()
            yield fleet
        finally:
            await fleet.aclose()


class Servers(Protocol):
    """Redis servers of a test."""

    def start(self) -> object:
        """Start them, and wait until they serve."""

    def kill(self) -> None:
        """End them at once."""


S = TypeVar("S", bound=Servers)


@asynccontextmanager
async def started(servers: S) -> AsyncIterator[S]:
    """Run servers while the body runs."""
    try:
        await asyncio.to_thread(servers.start)
        yield servers
    finally:
        servers.kill()


async def has_store(replica: Replica) -> bool:
    return await replica.metric("penstock_store_up") == 1.0


async def reads_audit_log(replica: Replica) -> bool:
    return (await replica.admin("GET", "audit/verify")).status == 200


async def has_lost_store(replica: Replica) -> bool:
    return await replica.metric("penstock_store_up") == 0.0


def _always(is_so: Callable[[], bool]) -> Until:
    async def check() -> bool:
        return is_so()

    return check
