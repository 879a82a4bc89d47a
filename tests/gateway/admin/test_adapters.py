"""Adapters come to every replica of a model and leave it, by an editor's order, which the audit log has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import Wire
from tests.gateway.stack import Stack, chat, running

PATH = "/admin/api/deployments/{}/adapters"
POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
  - {{id: large, url: "unix:{folder}/large.sock", model: tiny}}
routes:
  - id: cached
    match: {{models: [chat]}}
    select: {{policy: first_available, candidates: [small, large]}}
    cache: {{mode: exact}}
"""


async def done(wire: Wire) -> None:
    await wire.answer(b"Success: LoRA adapter 'law' added successfully.")


async def refused(wire: Wire) -> None:
    await wire.answer(json.dumps({"error": {"message": "all 2 places are taken", "param": "lora_name"}}).encode(), 400)


async def without(wire: Wire) -> None:
    await wire.answer(b'{"error": {"message": "There is no route"}}', 404)


def _open(folder: Path) -> Any:
    return running(folder, policy=POLICY.format(folder=folder))


def _have(stack: Stack, **adapters: set[str]) -> None:
    for live in stack._live():
        live.note_adapters(adapters.get(live.id, set()))


async def _load(stack: Stack, name: str = "tiny", **fields: Any) -> Any:
    body = {"adapter": "law", "path": "law-v2", **fields}
    return await stack.call(body, admin=True, path=PATH.format(name))


async def test_an_order_to_a_model_goes_to_every_replica_and_into_the_audit_log(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        stack.small.scripts.append(done)
        stack.large.scripts.append(done)
        reply = await _load(stack, reason="new contracts")
        assert (reply.status, reply.json["changed"]) == (200, ["small", "large"])
        for upstream in (stack.small, stack.large):
            assert upstream.received[-1].line == "POST /v1/load_lora_adapter HTTP/1.1"
            assert upstream.received[-1].json == {"lora_name": "law", "lora_path": "law-v2"}

        await stack.call(chat("tiny:law"))
        served = [*stack.small.received[1:], *stack.large.received[1:]]
        assert [request.json["model"] for request in served] == ["tiny:law"]

        stack.small.scripts.append(done)
        stack.large.scripts.append(done)
        gone = await stack.call(None, admin=True, path=f"{PATH.format('tiny')}/law", method="DELETE")
        assert (gone.status, gone.json["changed"]) == (200, ["small", "large"])
        assert stack.small.received[-1].line == "POST /v1/unload_lora_adapter HTTP/1.1"
        assert (await stack.call(chat("tiny:law"))).error["code"] == "model_not_found"
        audit = (await stack.get("/admin/api/audit", admin=True)).json["entries"]
        assert [(line["action"], line["target"], line["reason"]) for line in audit[-2:]] == [
            ("adapter.load", "tiny:law", "new contracts"),
            ("adapter.unload", "tiny:law", ""),
        ]


async def test_a_replica_with_the_adapter_is_left_alone(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        _have(stack, small={"law"})
        stack.large.scripts.append(done)
        assert (await _load(stack)).json["changed"] == ["large"]
        assert stack.small.received == []


async def test_a_replica_that_refuses_is_named_and_the_others_keep_the_adapter(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        stack.small.scripts.append(done)
        stack.large.scripts.append(refused)
        reply = await _load(stack)
        assert reply.status == 502
        assert reply.error["message"] == "Not done at 'large': all 2 places are taken. Done at: small."
        stack.small.scripts.append(without)
        reply = await _load(stack, name="small", adapter="tax")
        assert "start the engine with --max-loras and --lora-dir" in reply.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"adapter": "a:b"}, "adapter"), ({"adapter": ""}, "adapter"), ({"path": ""}, "path"), ({"other": 1}, None)],
)
async def test_a_wrong_order_is_refused_before_any_engine_gets_it(
    fields: dict[str, Any], param: str | None, tmp_path: Path
) -> None:
    async with _open(tmp_path) as stack:
        reply = await _load(stack, **fields)
        assert (reply.status, reply.error["param"]) == (400, param)
        assert (await _load(stack, name="nobody")).status == 404
        assert stack.small.received == []


async def test_an_order_needs_an_editor(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        headers = {"authorization": "Bearer nothing"}
        body = {"adapter": "law", "path": "law"}
        assert (await stack.call(body, admin=True, path=PATH.format("tiny"), headers=headers)).status == 401
        assert (await stack.call(body, path=PATH.format("tiny"))).status == 404
        assert stack.small.received == []


async def test_models_list_adapters_and_caches_keep_their_answers_apart(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        _have(stack, small={"law", "tax"})
        models = {model["id"]: model for model in (await stack.get("/v1/models")).json["data"]}
        assert models["tiny:law"]["parent"] == "tiny"
        assert {"chat:law", "chat:tax", "tiny", "auto:law"} <= models.keys()
        assert "parent" not in models["tiny"]
        assert (await stack.get("/v1/models/chat:tax")).json == models["chat:tax"]
        assert (await stack.get("/v1/models/chat:none")).error["code"] == "model_not_found"

        for _ in range(2):
            for name in ("chat", "chat:law", "chat:tax"):
                assert (await stack.call(chat(name, temperature=0))).status == 200
        assert [request.json["model"] for request in stack.small.received] == ["tiny", "tiny:law", "tiny:tax"]


async def test_an_order_that_no_replica_follows_is_withdrawn_from_the_audit_log(tmp_path: Path) -> None:
    async with _open(tmp_path) as stack:
        stack.small.scripts.append(refused)
        assert (await _load(stack, name="small")).status == 502
        lines = (await stack.get("/admin/api/audit", admin=True)).json["entries"]
        assert [line["action"] for line in lines[-2:]] == ["adapter.load", "adapter.load.withdrawn"]
        _have(stack, small={"law"})
        assert (await _load(stack, name="small")).json["changed"] == []
        assert len((await stack.get("/admin/api/audit", admin=True)).json["entries"]) == len(lines), "nothing to do"
