"""Stored responses are reached with a key only."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from tests.gateway.stack import policy_text, running

KEY = "sk-penstock-test"
OTHER = "sk-penstock-other"
TENANTS = f"""
tenants:
  - {{id: a, keys: [{{id: k, sha256: {sha256(KEY.encode()).hexdigest()}}}]}}
  - {{id: b, keys: [{{id: k, sha256: {sha256(OTHER.encode()).hexdigest()}}}]}}
responses: {{store: true}}
"""


async def test_only_the_tenants_own_key_reaches_a_response(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path) + TENANTS) as stack:
        own, other = ({"authorization": f"Bearer {key}"} for key in (KEY, OTHER))
        body = {"model": "auto", "input": "hi"}
        path = "/v1/responses/" + (await stack.call(body, path="/v1/responses", headers=own)).json["id"]
        for place in (path, f"{path}/input_items"):
            assert (await stack.get(place, headers=own)).status == 200
            assert (await stack.get(place, headers=other)).status == 404
            assert (await stack.get(place)).status == 401
        assert (await stack.call(None, path=path, method="DELETE", headers=other)).status == 404
        assert (await stack.call(None, path=path, method="DELETE")).status == 401
        continued = {"model": "auto", "input": "x", "previous_response_id": path.rpartition("/")[2]}
        refused = await stack.call(continued, path="/v1/responses", headers=other)
        assert refused.error["code"] == "previous_response_not_found"
        assert (await stack.get(path, headers=own)).status == 200


async def test_a_stored_response_is_not_streamed(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path) + "responses: {store: true}\n") as stack:
        made = (await stack.call({"model": "auto", "input": "hi"}, path="/v1/responses")).json
        reply = await stack.get(f"/v1/responses/{made['id']}?stream=true")
    assert (reply.status, reply.error["param"]) == (400, "stream")
