"""The list of models."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.stack import running


async def test_models_lists_aliases_and_deployments_own_models(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.get("/v1/models")

        assert reply.json["object"] == "list"
        assert {model["id"] for model in reply.json["data"]} >= {"auto", "solo", "tiny", "big"}
        assert (await stack.get("/v1/models/tiny")).json["object"] == "model"
        assert (await stack.get("/v1/models/none")).error["code"] == "model_not_found"
