"""Members by the dashboard of a Ray cluster, as scripted answers."""

from __future__ import annotations

from typing import Any

import httpx

from gateway.discovery.ray_proxies import LOOK_S, RayProxies
from tests.gateway.discovery.recorded import Pauses, following


def serve(answers: list[Any]) -> httpx.AsyncClient:
    """A client whose requests get these answers in turn; a number is a status."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://head:8265/api/serve/applications/"
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found) if isinstance(found, int) else httpx.Response(200, json=found)

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


def details(**statuses: str) -> dict[str, Any]:
    proxies = {
        name: {"node_id": name, "node_ip": f"10.0.0.{number}", "actor_id": "a", "status": status}
        for number, (name, status) in enumerate(statuses.items(), 1)
    }
    options = {"host": "0.0.0.0", "port": 8123}
    return {"proxy_location": "EveryNode", "http_options": options, "proxies": proxies, "applications": {}}


async def test_healthy_proxies_are_members_and_draining_ones_are_not() -> None:
    pauses = Pauses()
    client = serve([details(a="HEALTHY", b="DRAINING", c="STARTING", d="HEALTHY"), details(a="UNHEALTHY")])
    async with client, following(RayProxies("http://head:8265/", client, pause=pauses)) as seen:
        assert await seen.next() == ["10.0.0.1:8123", "10.0.0.4:8123"]
        assert await pauses.pass_() == LOOK_S
        assert await seen.next() == []


async def test_a_dashboard_that_fails_or_has_no_serve_is_a_failure() -> None:
    pauses = Pauses()
    client = serve([httpx.ConnectError("refused"), 500, {"proxies": {}}, {"proxies": 3}, details(a="HEALTHY")])
    async with client, following(RayProxies("http://head:8265", client, pause=pauses)) as seen:
        for reason in ("refused", "status 500", "no proxy", "proxies"):
            assert reason in await seen.failure()
            await pauses.pass_()
        assert await seen.next() == ["10.0.0.1:8123"]
