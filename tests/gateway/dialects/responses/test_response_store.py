"""Responses that are kept: continued, read, listed and deleted by their own tenant."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.responses.response_store import ResponseStore, StoredResponse
from gateway.errors import InvalidRequest, Shed
from gateway.store.base import MAX_VALUE_BYTES, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore
from tests.gateway.dialects.responses.scripts import PATH, create, events_of
from tests.gateway.stack import Stack, policy_text, running

TOKEN = "a" * 48
RESPONSE: dict[str, Any] = {
    "id": f"resp_{TOKEN}",
    "output": [{"id": f"msg_{TOKEN}0000", "type": "message", "role": "assistant", "content": "hello"}],
}
STORED = StoredResponse(RESPONSE, [{"role": "user", "content": "hi"}])


def keeping(folder: Path, ttl_s: int = 60) -> str:
    """A policy that keeps responses."""
    return policy_text(folder) + f"responses: {{store: true, ttl_s: {ttl_s}}}\n"


def storing(folder: Path, settings: dict[str, Any] | None = None) -> AbstractAsyncContextManager[Stack]:
    """Run a gateway that keeps responses, in a store that a busy disk does not make unreadable."""
    return running(folder, policy=keeping(folder), settings={"store.timeout_s": 2.0, **(settings or {})})


async def get(stack: Stack, path: str) -> Any:
    """Read from the public listener."""
    return await stack.get(f"{PATH}/{path}")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_continued_by_its_id(tmp_path: Path, stream: bool) -> None:
    async with storing(tmp_path) as stack:
        first = await create(stack, instructions="Be short.", stream=stream)
        response = events_of(first.body)[-1]["response"] if stream else first.json
        assert response["store"] is True
        second = await create(stack, input="again", previous_response_id=response["id"])
        assert second.status == 200, second.body
        await create(stack, input="more", previous_response_id=second.json["id"])
        assert stack.small.received[1].json["messages"] == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "again"},
        ]
        assert len(stack.small.received[2].json["messages"]) == 5
    assert second.json["previous_response_id"] == response["id"]


async def test_an_item_is_referred_to_by_its_id(tmp_path: Path) -> None:
    async with storing(tmp_path) as stack:
        first = await create(stack)
        reference = {"type": "item_reference", "id": first.json["output"][0]["id"]}
        again = [{"role": "user", "content": "hi"}, reference, {"role": "user", "content": "again"}]
        second = await create(stack, input=again)
        assert second.status == 200, second.body
        assert stack.small.received[1].json["messages"][1] == {"role": "assistant", "content": "hello"}
        unknown = await create(stack, input=[{"type": "item_reference", "id": f"msg_{TOKEN}0000"}])
    assert (unknown.status, unknown.error["param"]) == (400, "input[0].id")


async def test_a_response_is_read_listed_and_deleted(tmp_path: Path) -> None:
    async with storing(tmp_path) as stack:
        made = (await create(stack, input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])).json
        read = await get(stack, made["id"])
        assert read.json == made
        items = (await get(stack, f"{made['id']}/input_items?order=asc")).json
        assert [item["content"] for item in items["data"]] == [
            [{"type": "input_text", "text": "a"}],
            [{"type": "input_text", "text": "b"}],
        ]
        page = (await get(stack, f"{made['id']}/input_items?limit=1")).json
        assert (page["first_id"], page["has_more"]) == (items["last_id"], True)
        rest = (await get(stack, f"{made['id']}/input_items?limit=1&after={page['last_id']}")).json
        assert (rest["data"][0]["id"], rest["has_more"]) == (items["first_id"], False)
        gone = await stack.call(None, path=f"{PATH}/{made['id']}", method="DELETE")
        assert gone.json == {"id": made["id"], "object": "response", "deleted": True}
        for reply in (
            await get(stack, made["id"]),
            await get(stack, f"{made['id']}/input_items"),
            await stack.call(None, path=f"{PATH}/{made['id']}", method="DELETE"),
        ):
            assert (reply.status, reply.error["code"]) == (404, "not_found")
        assert (await create(stack, previous_response_id=made["id"])).error["code"] == "previous_response_not_found"


async def test_another_gateway_with_the_same_store_continues_a_response(tmp_path: Path, url: str) -> None:
    address = {"store.address": url}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with storing(tmp_path / "a", address) as stack:
        made = (await create(stack)).json
        assert made["store"] is True
    async with storing(tmp_path / "b", address) as stack:
        assert (await get(stack, made["id"])).json == made
        reply = await create(stack, input="again", previous_response_id=made["id"])
        assert reply.status == 200
        assert len(stack.small.received[0].json["messages"]) == 3
        assert (await stack.call(None, path=f"{PATH}/{made['id']}", method="DELETE")).status == 200
        assert (await get(stack, made["id"])).status == 404


@pytest.mark.parametrize("query", ["order=up", "limit=0", "limit=101", "limit=x", "after=msg_x"])
async def test_wrong_pages_are_refused(tmp_path: Path, query: str) -> None:
    async with storing(tmp_path) as stack:
        made = (await create(stack)).json
        reply = await get(stack, f"{made['id']}/input_items?{query}")
    assert (reply.status, reply.error["param"]) == (400, query.partition("=")[0])


async def test_a_client_declines_to_have_its_response_stored(tmp_path: Path) -> None:
    async with storing(tmp_path) as stack:
        made = (await create(stack, store=False)).json
        assert made["store"] is False
        assert (await get(stack, made["id"])).status == 404


async def test_tenants_do_not_see_each_others_responses(tmp_path: Path) -> None:
    store = ResponseStore(EmbeddedStore(tmp_path / "store", wall=lambda: 0.0))
    assert await store.keep("a", STORED, ttl_s=9)
    found = await store.read("a", RESPONSE["id"])
    assert found is not None
    assert found.response == RESPONSE
    assert await store.read("b", RESPONSE["id"]) is None
    assert not await store.delete("b", RESPONSE["id"])
    with pytest.raises(InvalidRequest, match="there is no response"):
        await store.recall("b", {"previous_response_id": RESPONSE["id"]})
    await store._store.aclose()


async def test_a_response_expires(tmp_path: Path) -> None:
    now = [100.0]
    store = ResponseStore(EmbeddedStore(tmp_path / "store", wall=lambda: now[0]))
    assert await store.keep("a", STORED, ttl_s=9)
    now[0] = 110.0
    assert await store.read("a", RESPONSE["id"]) is None
    await store._store.aclose()


@pytest.mark.parametrize("name", ["", "x" * 600, "a\0b"])
async def test_an_id_that_no_store_takes_is_unknown(tmp_path: Path, name: str) -> None:
    store = ResponseStore(EmbeddedStore(tmp_path / "store", wall=lambda: 0.0))
    assert await store.read("a", name) is None
    assert not await store.delete("a", name)


class _Lost:
    """A store that is down."""

    async def put(self, *arguments: object, **options: object) -> None:
        raise StoreUnavailable(StoreLoss.DOWN, "x")

    get = delete = put


async def test_without_the_store_nothing_is_stored_and_nothing_can_be_read() -> None:
    store = ResponseStore(_Lost())  # type: ignore[arg-type]
    assert not await store.keep("a", STORED, ttl_s=9)
    with pytest.raises(Shed, match="cannot be read"):
        await store.read("a", "resp_1")
    with pytest.raises(Shed, match="cannot be read"):
        await store.delete("a", "resp_1")


async def test_what_is_too_large_is_not_stored(tmp_path: Path) -> None:
    store = ResponseStore(EmbeddedStore(tmp_path / "store", wall=lambda: 0.0))
    large = StoredResponse(RESPONSE, [{"role": "user", "content": "x" * MAX_VALUE_BYTES}])
    assert not await store.keep("a", large, ttl_s=9)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_could_not_be_stored_reports_it(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with storing(tmp_path) as stack:
        monkeypatch.setattr(stack.gateway._stores.responses, "_store", _Lost(), raising=True)
        reply = await create(stack, stream=stream)
    response = events_of(reply.body)[-1]["response"] if stream else reply.json
    assert response["status"] == "completed"
    assert response["store"] is False


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_of_the_store_is_logged_once_under_the_requests_own_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async def keep(*_: Any, **__: Any) -> bool:
        raise LookupError("of the test")

    monkeypatch.setattr(ResponseStore, "keep", keep)
    async with storing(tmp_path) as stack:
        reply = await create(stack, stream=stream)
        (line,) = stack.lines("request_failed")
        assert line["request_id"] == reply.headers["x-request-id"]
        assert [each["request_id"] for each in stack.lines()] == [reply.headers["x-request-id"]]
        assert stack.lines("endpoint_failed") == []
    if not stream:
        assert (reply.status, reply.error["code"]) == (500, "internal_error")
        assert reply.headers["x-request-id"] in reply.error["message"]


async def test_a_response_that_cannot_be_encoded_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> bytes:
        raise LookupError("of the test")

    async with storing(tmp_path) as stack:
        with monkeypatch.context() as patch:
            patch.setattr("gateway.dialects.responses.exchange.encoded", fail)
            reply = await create(stack)
        assert (reply.status, reply.error["code"]) == (500, "internal_error")
        (line,) = stack.lines("request_failed")
        assert line["request_id"] == reply.headers["x-request-id"]
        assert line["request_id"] in reply.error["message"]
        assert [each["status"] for each in stack.lines()] == [500]
        assert (await create(stack)).json["store"] is True
