"""Adapters over HTTP: named in `model`, listed, loaded from one folder and unloaded, and loaded again by a new core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.protocol import AdapterReport, LoadAdapter, UnloadAdapter
from tests.engine.frontend.conftest import Running, StartFront
from tests.engine.frontend.fake_core import FakeCore

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
LOADED = AdapterReport(name="law", change="loaded", digest="1a1a1a1a1a1a1a1a")


@pytest.fixture
async def adapted(start_front: StartFront, tmp_path: Path) -> AsyncIterator[Running]:
    (tmp_path / "adapters" / "law").mkdir(parents=True)
    async with start_front(lora_dir=tmp_path / "adapters") as running:
        yield running


async def _loaded(running: Running) -> FakeCore:
    """The core once it has loaded the adapter `law`."""
    core = await running.core()
    loading = asyncio.create_task(running.client.post(LOAD, json={"lora_name": "law", "lora_path": "law"}))
    await core.next_order()
    core.change(LOADED)
    assert (await loading).status_code == 200
    return core


def _chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


async def test_an_adapter_is_loaded_named_listed_and_unloaded(adapted: Running) -> None:
    core = await adapted.core()
    loading = asyncio.create_task(adapted.client.post(LOAD, json={"lora_name": "law", "lora_path": "law"}))
    order = await core.next_order()
    assert isinstance(order, LoadAdapter)
    assert (order.name, Path(order.path).parts[-2:]) == ("law", ("adapters", "law"))
    busy = await adapted.client.post("/v1/chat/completions", json=_chat("tiny:law"))
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    core.change(LOADED)
    assert (await loading).text == "Success: LoRA adapter 'law' added successfully."

    models = (await adapted.client.get("/v1/models")).json()["data"]
    assert [(model["id"], model.get("parent")) for model in models] == [("tiny", None), ("tiny:law", "tiny")]
    assert (await adapted.client.get("/v1/models/tiny:law")).json() == models[1]
    answering = asyncio.create_task(adapted.client.post("/v1/chat/completions", json=_chat("tiny:law")))
    add = await core.next_add()
    assert add.adapter == "law"
    core.emit(add.seq_id, adapted.ids("hello"), "length")
    assert (await answering).json()["model"] == "tiny:law"
    answering = asyncio.create_task(adapted.client.post("/v1/chat/completions", json=_chat("tiny")))
    add = await core.next_add()
    assert add.adapter is None
    core.emit(add.seq_id, adapted.ids("hello"), "length")
    assert (await answering).json()["model"] == "tiny"

    unloading = asyncio.create_task(adapted.client.post(UNLOAD, json={"lora_name": "law"}))
    assert await core.next_order() == UnloadAdapter(name="law", deadline_s=0.3)
    refused = await adapted.client.post("/v1/chat/completions", json=_chat("tiny:law"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    core.change(AdapterReport(name="law", change="unloaded"))
    assert (await unloading).text == "Success: LoRA adapter 'law' removed successfully."
    assert len((await adapted.client.get("/v1/models")).json()["data"]) == 1


@pytest.mark.parametrize("model", ["tiny:law", "tiny:", "other:law", ":law", "tiny:law:more", "law"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_an_adapter_that_is_not_loaded_is_an_unknown_model(model: str, path: str, running: Running) -> None:
    await running.core()
    body = {**_chat(model), "prompt": "hello"} if path == "/v1/completions" else _chat(model)
    body.pop("messages" if path == "/v1/completions" else "prompt", None)
    reply = await running.client.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
    assert reply.json()["error"]["param"] == "model"


async def test_an_answer_states_the_model_with_its_adapter(adapted: Running) -> None:
    core = await _loaded(adapted)
    stated = []
    for model in ("tiny:law", "tiny"):
        answering = asyncio.create_task(
            adapted.client.post("/v1/chat/completions", json=_chat(model), headers={"x-penstock-model-state": "1"})
        )
        core.emit((await core.next_add()).seq_id, adapted.ids("hello"), "length")
        stated.append((await answering).headers["x-penstock-model-state"].partition(";")[0])
    assert stated == [f"0011223344556677{LOADED.digest}", "0011223344556677"]


async def test_without_a_folder_the_endpoints_are_off(running: Running) -> None:
    await running.core()
    for path in (LOAD, UNLOAD):
        assert (await running.client.post(path, json={"lora_name": "a", "lora_path": "a"})).status_code == 404


def _error(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["param"]


@pytest.mark.parametrize("path", ["", ".", "..", "../other", "/etc", "law/../..", "x" * 2000, "a\0b", 5, None, "link"])
async def test_a_path_outside_the_folder_is_refused(path: object, adapted: Running, tmp_path: Path) -> None:
    await adapted.core()
    (tmp_path / "other").mkdir()
    (tmp_path / "adapters" / "link").symlink_to(tmp_path / "other")
    reply = await adapted.client.post(LOAD, json={"lora_name": "law", "lora_path": path})
    assert _error(reply) == (400, "lora_path")


@pytest.mark.parametrize("name", ["", "a:b", "../a", "a b", "x" * 65, "-a", 5, None, "a\n"])
async def test_a_wrong_name_is_refused(name: object, adapted: Running) -> None:
    await adapted.core()
    assert _error(await adapted.client.post(LOAD, json={"lora_name": name, "lora_path": "law"})) == (400, "lora_name")
    assert _error(await adapted.client.post(UNLOAD, json={"lora_name": name})) == (400, "lora_name")


async def test_what_the_core_refuses_is_the_requests_fault_and_can_be_tried_again(adapted: Running) -> None:
    core = await adapted.core()
    for _ in range(2):
        loading = asyncio.create_task(adapted.client.post(LOAD, json={"lora_name": "law", "lora_path": "law"}))
        await core.next_order()
        core.change(AdapterReport(name="law", change="refused", error="r: expected a rank from 1 to 8"))
        reply = await loading
        assert _error(reply) == (400, "lora_path")
        assert "r: expected a rank from 1 to 8" in reply.json()["error"]["message"]
    assert (await adapted.client.post(UNLOAD, json={"lora_name": "law"})).status_code == 404


async def test_a_name_in_use_is_refused(adapted: Running) -> None:
    await _loaded(adapted)
    reply = await adapted.client.post(LOAD, json={"lora_name": "law", "lora_path": "law"})
    assert _error(reply) == (400, "lora_name")


async def test_a_core_that_replaces_a_lost_one_gets_the_adapters_again(adapted: Running) -> None:
    core = await _loaded(adapted)
    unloading = asyncio.create_task(adapted.client.post(UNLOAD, json={"lora_name": "law"}))
    await core.next_order()
    core.die()
    assert (await unloading).status_code == 502
    await adapted.core()
    assert (await adapted.client.get("/v1/models/tiny:law")).status_code == 404  # its unload was under way

    core = adapted.cores.started[-1]
    loading = asyncio.create_task(adapted.client.post(LOAD, json={"lora_name": "law", "lora_path": "law"}))
    await core.next_order()
    core.change(LOADED)
    await loading
    core.die()
    core = await adapted.core()
    order = await core.next_order()
    assert isinstance(order, LoadAdapter)
    assert order.name == "law"
    assert (await adapted.client.post("/v1/chat/completions", json=_chat("tiny:law"))).status_code == 503
    core.change(LOADED)
    while len((await adapted.client.get("/v1/models")).json()["data"]) < 2:
        await asyncio.sleep(0.002)


async def test_the_load_feed_and_the_metrics_state_the_adapters(adapted: Running) -> None:
    await _loaded(adapted)
    async with adapted.client.stream("GET", "/engine/load") as response:
        async for line in response.aiter_lines():
            assert '"adapters":["law"]' in line
            break
    assert "engine_lora_adapters 1.0" in (await adapted.client.get("/metrics")).text
