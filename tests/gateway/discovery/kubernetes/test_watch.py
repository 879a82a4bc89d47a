"""The watch of EndpointSlices, against a scripted API server on real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.discovery.kubernetes.api_server import KubernetesAccess, KubernetesApi
from gateway.discovery.kubernetes.watch import WATCH_S, EndpointSliceWatch
from gateway.discovery.source import FIRST_PAUSE_S
from tests.gateway.discovery.kubernetes.scripted_api import (
    GONE,
    ApiCall,
    ScriptedApi,
    bookmark,
    endpoint_slice,
    scripted_api,
    slice_list,
)
from tests.gateway.discovery.recorded import Pauses, Recorded, following


class World:
    """A followed Service and the API server that the test plays."""

    def __init__(self, api: ScriptedApi, seen: Recorded, pauses: Pauses) -> None:
        self.api = api
        self.seen = seen
        self.pauses = pauses

    async def listed(self, version: int, *addresses: str) -> ApiCall:
        """Answer a list, begin the watch after it, and return that."""
        call = await self.api.call()
        assert not call.is_watch
        await call.answer(slice_list(version, endpoint_slice("engine-a", version, *addresses)))
        return await self.watched(version)

    async def watched(self, version: int) -> ApiCall:
        """Begin the watch that goes on behind a version."""
        call = await self.api.call()
        assert (call.is_watch, call.parameters["resourceVersion"]) == (True, str(version))
        await call.begin()
        return call

    async def members(self) -> list[str]:
        """The next listing without its ports."""
        found = await self.seen.next()
        assert isinstance(found, list), found
        return [member.removesuffix(":8000") for member in found]


@asynccontextmanager
async def world(port: int | str | None = "http", token_file: Path | None = None) -> AsyncIterator[World]:
    async with scripted_api() as api:
        pauses = Pauses()
        kubernetes = KubernetesApi(KubernetesAccess(url=api.url, token_file=token_file, ca_file=None))
        async with (
            kubernetes.client,
            following(EndpointSliceWatch("llm/engine", port, kubernetes, pause=pauses)) as seen,
        ):
            yield World(api, seen, pauses)


async def test_the_list_requests_the_slices_of_the_service() -> None:
    async with world() as found:
        call = await found.api.call()
        assert (call.method, call.path) == ("GET", "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices")
        assert call.parameters == {"labelSelector": "kubernetes.io/service-name=engine", "limit": "500"}
        await call.answer(slice_list(5))
        watch = await found.watched(5)
        assert (watch.parameters["allowWatchBookmarks"], watch.parameters["timeoutSeconds"]) == ("true", str(WATCH_S))


async def test_events_change_the_members() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        assert await found.members() == ["10.0.0.1"]
        assert await found.members() == ["10.0.0.1"], "the watch has begun: the source can be read"
        await watch.event("ADDED", endpoint_slice("engine-b", 11, "10.0.0.7"))
        assert await found.members() == ["10.0.0.1", "10.0.0.7"]
        await watch.event("MODIFIED", endpoint_slice("engine-a", 12, "10.0.0.2", not_ready=("10.0.0.1",)))
        assert await found.members() == ["10.0.0.2", "10.0.0.7"]
        await watch.event("DELETED", endpoint_slice("engine-b", 13, "10.0.0.7"))
        assert await found.members() == ["10.0.0.2"]


async def test_a_watch_resumes_behind_the_last_event_without_a_new_list() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await watch.event("ADDED", endpoint_slice("engine-b", 14, "10.0.0.7"))
        for expected in (1, 1, 2):
            assert len(await found.members()) == expected
        await watch.end()
        await found.pauses.pass_()
        again = await found.watched(14)
        assert len(await found.members()) == 2
        await again.event("DELETED", endpoint_slice("engine-b", 15))
        assert await found.members() == ["10.0.0.1"]


async def test_a_bookmark_moves_the_version_and_changes_no_member() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await watch.event("BOOKMARK", bookmark(99))
        await watch.end()
        await found.pauses.pass_()
        await found.watched(99)
        assert [await found.members() for _ in range(3)] == [["10.0.0.1"]] * 3


async def test_a_lost_connection_is_reported_and_the_watch_resumes() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await watch.event("BOOKMARK", bookmark(11))
        await found.members()
        await found.members()
        watch.cut()
        assert "127.0.0.1" in await found.seen.failure()
        assert await found.pauses.pass_() == 0.5
        await found.watched(11)
        assert await found.members() == ["10.0.0.1"], "the members stayed, and the source can be read again"


@pytest.mark.parametrize("form", ["event", "status"])
async def test_a_version_that_is_gone_is_listed_anew(form: str) -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await found.members()
        await found.members()
        if form == "event":
            await watch.event("ERROR", GONE)
        else:
            await watch.event("BOOKMARK", bookmark(11))
            await watch.end()
            await found.pauses.pass_()
            await (await found.api.call()).answer(GONE, 410)
        assert await found.pauses.pass_() == 0.5
        await found.listed(50, "10.0.0.8")
        assert await found.members() == ["10.0.0.8"]
        assert found.seen.events.qsize() <= 1, "being gone is no failure"


@pytest.mark.parametrize("line", [b"no JSON\n", None], ids=["unreadable", "gone"])
async def test_lists_that_help_no_watch_come_with_longer_and_longer_pauses(line: bytes | None) -> None:
    async with world() as found:
        waited = []
        for version in range(10, 14):
            watch = await found.listed(version, "10.0.0.1")
            if line is None:
                await watch.event("ERROR", GONE)
            else:
                await watch.raw(line)
            waited.append(await found.pauses.pass_())
        assert waited == [0.5, 1.0, 2.0, 4.0]
        watch = await found.listed(20, "10.0.0.1")
        await watch.event("BOOKMARK", bookmark(21))
        await watch.end()
        await found.pauses.pass_()
        again = await found.watched(21)
        await again.event("ERROR", GONE)
        assert await found.pauses.pass_() == 0.5, "an event came, so the pauses begin anew"


async def test_a_long_list_comes_in_pages_and_is_taken_as_a_whole() -> None:
    async with world() as found:
        first = await found.api.call()
        await first.answer(slice_list(10, endpoint_slice("engine-a", 3, "10.0.0.1"), more="token-2"))
        second = await found.api.call()
        assert second.parameters["continue"] == "token-2"
        await second.answer(slice_list(10, endpoint_slice("engine-b", 4, "10.0.0.2")))
        assert await found.members() == ["10.0.0.1", "10.0.0.2"]
        await found.watched(10)


async def test_a_page_that_is_gone_begins_the_list_anew() -> None:
    async with world() as found:
        await (await found.api.call()).answer(slice_list(10, endpoint_slice("engine-a", 3, "10.0.0.1"), more="old"))
        await (await found.api.call()).answer(GONE, 410)
        await found.pauses.pass_()
        await found.listed(20, "10.0.0.3")
        assert await found.members() == ["10.0.0.3"]


async def test_a_refused_list_is_reported_and_tried_again_with_longer_pauses() -> None:
    async with world() as found:
        for pause_s in (0.5, 1.0):
            await (await found.api.call()).answer({"kind": "Status", "code": 403}, 403)
            assert "may not read" in await found.seen.failure()
            assert await found.pauses.pass_() == pause_s
        await found.listed(10, "10.0.0.1")
        assert await found.members() == ["10.0.0.1"]


async def test_the_token_is_read_anew_for_every_request(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")
    async with world(token_file=token_file) as found:
        call = await found.api.call()
        assert call.headers["authorization"] == "Bearer first"
        token_file.write_text("second\n")
        await call.answer({"kind": "Status", "code": 401}, 401)
        assert "token" in await found.seen.failure()
        await found.pauses.pass_()
        assert (await found.api.call()).headers["authorization"] == "Bearer second"


async def test_a_server_that_ends_each_watch_at_once_is_not_hurried() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        for pause_s in (0.5, 1.0):
            await watch.end()
            assert await found.pauses.begun() == pause_s
            assert found.api.num_waiting == 0
            found.pauses.end()
            watch = await found.watched(10)


async def test_an_event_in_pieces_and_several_in_one_piece_are_understood() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await found.members()
        await found.members()
        events = b"".join(
            json.dumps({"type": "ADDED", "object": endpoint_slice(f"s{number}", number, f"10.0.1.{number}")}).encode()
            + b"\n"
            for number in (11, 12)
        )
        await watch.raw(events[:100])
        await watch.raw(events[100:])
        assert await found.members() == ["10.0.0.1", "10.0.1.11", "10.0.1.12"]


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type": "ADDED"}\n', b'{"type":"ADDED","object":{"metadata":3}}\n'])
async def test_an_event_that_cannot_be_read_leads_to_a_new_list(line: bytes) -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await found.members()
        await found.members()
        await watch.raw(line)
        assert "watch" in await found.seen.failure()
        await found.pauses.pass_()
        await found.listed(20, "10.0.0.2")
        assert await found.members() == ["10.0.0.2"]


async def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.discovery.kubernetes.watch.MAX_EVENT_BYTES", 1000)
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        await found.members()
        await found.members()
        await watch.raw(b"x" * 1001)
        assert "larger" in await found.seen.failure()


async def test_a_service_with_several_ports_needs_one_named() -> None:
    async with world(port=None) as found:
        ports = [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}]
        await (await found.api.call()).answer(slice_list(10, endpoint_slice("engine-a", 3, "10.0.0.1", ports=ports)))
        assert "http, metrics" in await found.seen.failure()


async def test_a_listing_that_is_refused_is_reported_and_the_watch_goes_on() -> None:
    async with world() as found:
        ports = [{"name": "web", "port": 8000}]
        call = await found.api.call()
        await call.answer(slice_list(10, endpoint_slice("engine-a", 10, "10.0.0.1", ports=ports)))
        assert "web" in await found.seen.failure()
        watch = await found.watched(10)
        assert "web" in await found.seen.failure()
        await watch.event("MODIFIED", endpoint_slice("engine-a", 11, "10.0.0.1"))
        assert await found.members() == ["10.0.0.1"]


async def test_a_server_that_ends_each_watch_after_one_event_is_not_hurried() -> None:
    async with world() as found:
        watch = await found.listed(10, "10.0.0.1")
        for version in (11, 12):
            await watch.event("BOOKMARK", bookmark(version))
            await watch.end()
            assert await found.pauses.begun() == FIRST_PAUSE_S
            assert found.api.num_waiting == 0
            found.pauses.end()
            watch = await found.watched(version)
