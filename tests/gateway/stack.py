"""A whole gateway over real sockets, with scripted upstreams, for tests."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from gateway.access.local_token import read_token
from gateway.app.app import Gateway
from gateway.cache.audit.match_models import MatchModels
from gateway.config.sources import config_of
from gateway.deployments.health.ejection import EjectionRules
from gateway.embedding.encoder import TextEncoder
from tests.gateway.scripted import ScriptedUpstream

NO_EJECTION = EjectionRules(consecutive_failures=1_000_000, min_exchanges=1_000_000)
"""For tests of what happens before a deployment is taken out."""

PRICED_PAIR = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: penstock-small, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "unix:{folder}/large.sock", model: penstock-large, cost_per_mtok: {{prompt: 9, completion: 9}}}}
"""
"""Where the small model costs a ninth; to be formatted with what follows it."""
POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, limits: {{max_in_flight: {permits}}}}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big, limits: {{max_in_flight: {permits}}}}}
lanes:
  - {{id: interactive, weight: 8, max_queue: {max_queue}}}
  - {{id: batch, weight: 1, max_queue: {max_queue}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    timeouts: {{connect_ms: 500, first_token_ms: {first_token_ms}, inter_token_ms: {inter_token_ms}, total_ms: 20000}}
  - id: solo
    match: {{models: [solo]}}
    select: {{policy: first_available, candidates: [small]}}
    timeouts: {{connect_ms: 500, first_token_ms: {first_token_ms}, inter_token_ms: {inter_token_ms}, total_ms: 20000}}
"""


def policy_text(folder: Path, **values: Any) -> str:
    """The test policy."""
    numbers = {"permits": 8, "max_queue": 8, "first_token_ms": 5000, "inter_token_ms": 5000, **values}
    return POLICY.format(folder=folder, **numbers)


class Reply:
    """A response as a client saw it."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.cookies = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("set-cookie:")]
        self.body = _unchunk(self.rest) if self.headers.get("transfer-encoding") == "chunked" else self.rest

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The inside of the envelope."""
        error: dict[str, Any] = self.json["error"]
        return error


def _unchunk(raw: bytes) -> bytes:
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        body += raw[:length]
        raw = raw[length + 2 :]
    return body


def chat(model: str = "auto", **fields: Any) -> dict[str, Any]:
    """A small request."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


def encode(
    body: Any = None, *, path: str = "/v1/chat/completions", method: str = "POST", headers: dict[str, str] | None = None
) -> bytes:
    """A request as bytes; `body` is JSON unless it is bytes already."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"host": "gateway", "connection": "close", **(headers or {})}
    if body is not None:
        given = {"content-type": "application/json", "content-length": str(len(data)), **given}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


class Stack:
    """One running gateway; `small` and `large` are its upstreams."""

    def __init__(self, gateway: Gateway, small: ScriptedUpstream, large: ScriptedUpstream, log: io.BytesIO) -> None:
        self.gateway = gateway
        self.small = small
        self.large = large
        self._log = log

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client connection to the public listener."""
        return await asyncio.open_unix_connection(self.gateway.config.public.listen.removeprefix("unix:"))

    async def call(self, body: Any = None, *, admin: bool = False, **how: Any) -> Reply:
        """Send one request on its own connection and read everything."""
        address = self.gateway.config.admin.listen if admin else self.gateway.config.public.listen
        if admin and how.get("method", "POST") not in ("GET", "HEAD"):
            given = how.get("headers") or {}
            if "authorization" not in given:
                how["headers"] = {"authorization": f"Bearer {self.admin_token}", **given}
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
        writer.write(encode(body, **how))
        raw = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return Reply(raw)

    @property
    def admin_token(self) -> str:
        """What a write to the admin listener needs."""
        return read_token(self.gateway.control.token.path)

    async def get(self, path: str, *, admin: bool = False, **how: Any) -> Reply:
        """GET."""
        return await self.call(None, admin=admin, path=path, method="GET", **how)

    def lines(self, event: str = "request") -> list[dict[str, Any]]:
        """Log lines of one kind so far."""
        self.gateway.log.flush()
        return [line for text in self._log.getvalue().splitlines() if (line := json.loads(text))["event"] == event]

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of a counter's samples that carry these labels."""
        text = (await self.get("/metrics", admin=True)).body.decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def until_idle(self) -> None:
        """Wait until no request is under way."""
        for _ in range(400):
            if not any(live.in_flight or live.limiter.num_waiting for live in self._live()):
                return
            await asyncio.sleep(0.005)
        raise AssertionError("requests are still under way")

    def check_integrity(self) -> None:
        """Nothing is held, nothing waits, every pool's counts are right."""
        for live in self._live():
            assert live.in_flight == 0
            assert live.limiter.num_waiting == 0
            live.limiter.check_integrity()
            live.client.check_integrity()
            live.health.check_integrity()
        assert self.gateway.snapshot is not None
        assert all(quota.num_in_flight == 0 for quota in self.gateway._quotas)
        assert all(lane.num_waiting == 0 for lane in self.gateway.snapshot.lanes.values())

    def _live(self) -> list[Any]:
        assert self.gateway.snapshot is not None
        return list(self.gateway.snapshot.deployments.values())


S = TypeVar("S", bound=Stack)


@asynccontextmanager
async def holding_nothing(stack: S) -> AsyncIterator[S]:
    """The stack with its gateway started; checks on the way out that nothing leaked."""
    gateway = stack.gateway
    await gateway.start()
    assert gateway._lag is not None
    gateway._lag.stop()  # on a busy test machine it would have requests shed that the test is not about
    try:
        yield stack
        await stack.until_idle()
        stack.check_integrity()
    finally:
        await gateway.stop(drain_timeout_s=0)


@asynccontextmanager
async def running(
    folder: Path,
    *,
    policy: str | None = None,
    ejection: EjectionRules | None = None,
    settings: Mapping[str, Any] | None = None,
    load_encoder: Callable[[Executor], Awaitable[TextEncoder]] | None = None,
    match_models: MatchModels | None = None,
    **values: Any,
) -> AsyncIterator[Stack]:
    """A gateway with both upstreams up; checks on the way out that nothing leaked."""
    (folder / "policy.yaml").write_text(policy or policy_text(folder, **values))
    config = config_of(
        {
            "public.listen": f"unix:{folder}/public.sock",
            "policy.document": folder / "policy.yaml",
            "process.runtime_dir": folder,
            "policy.poll_s": 0.05,
            "admin.listen": f"unix:{folder}/admin.sock",
            **(settings or {}),
        }
    )
    log = io.BytesIO()
    async with ScriptedUpstream(folder / "small.sock") as small, ScriptedUpstream(folder / "large.sock") as large:
        gateway = Gateway(
            config, log_stream=log, ejection=ejection, load_encoder=load_encoder, match_models=match_models
        )
        async with holding_nothing(Stack(gateway, small, large, log)) as stack:
            yield stack
