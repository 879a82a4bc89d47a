"""Clients of the replicas bench: write, wait until another one knows, send again, change the policy."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from loadtests.cache.similar import SLOW, questions, until_encoding
from loadtests.clients.http_client import Exchange, LoadConnection, clock, request_bytes
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Server, metric, start_gateway_with

Kind = Literal["exact", "similar"]
KINDS: Final[tuple[Kind, ...]] = ("exact", "similar")

_POLL_S: Final = 0.01
_PATIENCE_S: Final = 60.0
_IDLE_S: Final = 1.0
_APPLY_S: Final = 0.1
_COUNTS: Final = {"exact": "penstock_cache_entries", "similar": "penstock_cache_index_entries"}
_PATH: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Item:
    """Something to keep: a question about a deed, in a shop whose system prompt is its own."""

    kind: Kind
    shop: str
    deed: int

    def request(self, *, wording: int = 0, script: str = "script:num_chunks=2") -> bytes:
        """Send it."""
        system = {"role": "system", "content": f"You speak for the shop {self.shop}."}
        user = {"role": "user", "content": questions(wording)[self.deed]}
        body = {"model": self.kind, "messages": [system, user], "user": script}
        return request_bytes("POST", _PATH, json.dumps(body).encode())

    @property
    def again(self) -> tuple[bytes, bytes]:
        """A request that only a cached response answers soon, and how its answer reports it."""
        if self.kind == "exact":
            return self.request(), b"x-penstock-cache: hit-exact"
        return self.request(wording=1, script=SLOW), b"x-penstock-cache: hit-semantic"


def items(shop: str, kinds: tuple[Kind, ...]) -> Iterator[Item]:
    """Without end."""
    for number in itertools.count():
        for deed in range(len(questions(0))):
            yield Item(kinds[deed % len(kinds)], f"{shop} {number}", deed)


async def start_replica(bench: Workbench, name: str, store: str, upstream: str) -> Server:
    """A gateway that shares `store`, ready to encode."""
    rule = {"mode": "exact", "ttl_s": 3600}
    similar = {**rule, "mode": "exact_then_semantic", "max_error_ratio": 0.05, "audit_ratio": 0.0}
    routes = [
        {"id": kind, "match": {"models": [kind]}, "select": {"candidates": ["only"]}, "cache": cache}
        for kind, cache in zip(KINDS, (rule, similar), strict=True)
    ]
    deployment = {"id": "only", "url": upstream, "model": "scripted", "limits": {"max_in_flight": 1000}}
    policy = {"schema_version": 1, "deployments": [deployment], "routes": routes}
    settings = {"store.address": store, "policy.source": "store"}
    (bench.folder / name).mkdir()
    for graph in bench.folder.glob("*/*.onnx"):  # one makes the encoder's graph for all
        if not (bench.folder / name / graph.name).exists():
            os.link(graph, bench.folder / name / graph.name)
    server = await start_gateway_with(bench, policy, settings=settings, name=name)
    await until_encoding(server.address, server.admin, "similar", ())
    return server


async def until_settled(server: Server) -> None:
    """Return once nothing more is read from the store."""
    before, since = (-1.0, -1.0), clock()
    while clock() < since + _IDLE_S:
        counts = (await metric(server.admin, _COUNTS["exact"]), await metric(server.admin, _COUNTS["similar"]))
        if counts != before:
            before, since = counts, clock()
        await asyncio.sleep(0.05)


async def _send(connection: LoadConnection, request: bytes) -> Exchange:
    exchange = await connection.exchange(request)
    if not exchange.is_ok:
        raise OSError(f"a question: {exchange.error or exchange.status}")
    return exchange


async def _is_known(connection: LoadConnection, item: Item) -> bool:
    request, sign = item.again
    await _send(connection, request)
    return sign in connection.scanner.head


@dataclass(slots=True)
class Delays:
    """How soon what one gateway stored is known to another."""

    kind: Kind
    waits_s: list[float] = field(default_factory=list)
    num_refused: int = 0
    """Not given there, although known."""

    @classmethod
    async def measured(cls, one: Server, other: Server, kind: Kind, count: int) -> Delays:
        """Write at `one`, check `other`. Raises OSError when something never arrives."""
        found = cls(kind)
        writing, reader = await LoadConnection.open(one.address), await LoadConnection.open(other.address)
        await until_settled(other)
        for item in itertools.islice(items(f"of the {kind} delays", (kind,)), count):
            before = await metric(other.admin, _COUNTS[kind])
            ended_at = (await _send(writing, item.request())).ended_at
            while await metric(other.admin, _COUNTS[kind]) <= before:
                if clock() > ended_at + _PATIENCE_S:
                    raise OSError(f"{item} never came to the other gateway")
                await asyncio.sleep(_POLL_S)
            found.waits_s.append(clock() - ended_at)
            found.num_refused += not await _is_known(reader, item)
        writing.close()
        reader.close()
        return found


class Writer:
    """Keeps answers at a steady rate and remembers which were given when."""

    def __init__(self, shop: str) -> None:
        self._items = items(f"of the killed {shop}", KINDS)
        self.stored: list[tuple[float, Item]] = []
        self.stopped_at = 0.0

    async def write(
        self, server: Server, seconds: float, rate: float, beside: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Until the time is over, or the server is; `beside` is done again and again meanwhile."""
        connection, begun = await LoadConnection.open(server.address), clock()
        doing = None if beside is None else asyncio.ensure_future(beside())
        for number in itertools.count():
            if clock() >= begun + seconds:
                break
            item = next(self._items)
            self.stored.append(((await _send(connection, item.request())).ended_at, item))
            await asyncio.sleep(max(0.0, begun + number / rate - clock()))
        self.stopped_at = clock()
        if doing is not None:
            doing.cancel()
        connection.close()


@dataclass(frozen=True, slots=True)
class Losses:
    """What a kill cost."""

    num_written: int
    lost_ages_s: list[float]
    """Before the kill, of each answer that is gone."""

    def num_lost(self, older_than_s: float) -> int:
        """Of those of at least that age."""
        return sum(age_s >= older_than_s for age_s in self.lost_ages_s)


async def found_of(server: Server, writer: Writer) -> Losses:
    """Request everything that was written."""
    connection = await LoadConnection.open(server.address)
    lost = [writer.stopped_at - at for at, item in writer.stored if not await _is_known(connection, item)]
    connection.close()
    return Losses(len(writer.stored), lost)


@dataclass(frozen=True, slots=True)
class Records:
    """What a gateway knows of changes."""

    revision: int
    num_applies: int
    is_whole: bool
    """Whether the chain of audit records holds together."""


class Admin:
    """Changes the policy of one gateway and reads its records."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._token = (folder / "admin.token").read_text().strip()
        self._server = server
        self.num_applied = 0
        self.last_revision = 0

    async def apply(self) -> None:
        """Without end; what was acknowledged is counted."""
        shown = await self._call("GET", "/admin/api/policy")
        policy, etag = json.loads(shown["document"]), str(shown["etag"])
        for number in itertools.count(1):
            policy["routes"][0]["cache"]["ttl_s"] = 3600 + number
            body = {"document": json.dumps(policy), "reason": f"number {number}"}
            reply = await self._call("PUT", "/admin/api/policy", body, etag)
            etag, self.last_revision = str(reply["etag"]), reply["revision"]["number"]
            self.num_applied += 1
            await asyncio.sleep(_APPLY_S)

    async def read(self) -> Records:
        """As of now."""
        shown = await self._call("GET", "/admin/api/policy")
        listed = await self._call("GET", "/admin/api/audit?newest=true&limit=500")
        verified = await self._call("GET", "/admin/api/audit/verify")
        applies = sum(entry["action"] == "policy.apply" for entry in listed["entries"])
        return Records(shown["revision"]["number"], applies, verified["ok"])

    async def _call(self, method: str, path: str, body: object = None, etag: str = "") -> dict[str, Any]:
        connection = await LoadConnection.open(self._server.admin, keep_body=True)
        headers = (("authorization", f"Bearer {self._token}"), *((("if-match", etag),) if etag else ()))
        data = b"" if body is None else json.dumps(body).encode()
        try:
            exchange = await connection.exchange(request_bytes(method, path, data, headers))
            answer: dict[str, Any] = json.loads(connection.scanner.content or b"{}")
            if exchange.status != 200:
                raise OSError(f"{method} {path}: {exchange.error or exchange.status} {answer}")
            return answer
        finally:
            connection.close()
