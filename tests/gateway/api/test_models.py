"""The list of models."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from tests.gateway.stack import policy_text, running


async def test_models_lists_aliases_and_deployments_own_models(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.get("/v1/models")

        assert reply.json["object"] == "list"
        assert {model["id"] for model in reply.json["data"]} >= {"auto", "solo", "tiny", "big"}
        assert (await stack.get("/v1/models/tiny")).json["object"] == "model"
        assert (await stack.get("/v1/models/none")).error["code"] == "model_not_found"


CAPABLE = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, context_tokens: 64, input_modalities: [text, image]}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big, operations: [embeddings], context_tokens: 32}}
tenants:
  - {{id: dev}}
routes:
  - {{id: auto, match: {{models: [auto]}}, select: {{candidates: [small, large]}}}}
"""


async def test_each_model_states_what_it_can_do(tmp_path: Path) -> None:
    async with running(tmp_path, policy=CAPABLE.format(folder=tmp_path)) as stack:
        models = {model["id"]: model for model in (await stack.get("/v1/models")).json["data"]}
        chats = ["chat", *(path for path in models["tiny"]["capabilities"] if path in ("responses", "messages"))]

        assert models["tiny"]["capabilities"] == [*chats, "completions"]
        assert (models["tiny"]["context_length"], models["tiny"]["input_modalities"]) == (64, ["text", "image"])
        assert models["big"]["capabilities"] == ["embeddings"]
        assert "input_modalities" not in models["big"]
        assert models["auto"]["capabilities"] == [*chats, "completions", "embeddings"]
        assert (await stack.get("/v1/models/big")).json == models["big"]


async def test_the_key_may_stand_in_the_header_of_anthropics_sdk(tmp_path: Path) -> None:
    tenants = f"tenants:\n  - {{id: a, keys: [{{id: k, sha256: {sha256(b'sk-penstock-test').hexdigest()}}}]}}\n"
    async with running(tmp_path, policy=policy_text(tmp_path) + tenants) as stack:
        assert (await stack.get("/v1/models")).status == 401
        for path in ("/v1/models", "/v1/models/tiny"):
            assert (await stack.get(path, headers={"x-api-key": "sk-penstock-test"})).status == 200


async def test_what_is_unknown_of_a_model_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        model = (await stack.get("/v1/models/tiny")).json

        assert not {"context_length", "input_modalities"} & model.keys()
