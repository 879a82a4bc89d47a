"""Finished requests at the admin API: listed, filtered and explained."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.admin.test_context import POLICY
from tests.gateway.stack import Stack, chat, running


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        yield stack


async def test_one_request_is_explained_by_its_id(stack: Stack) -> None:
    reply = await stack.call(chat(stream=True))
    notified = (await stack.get(f"/admin/api/requests/{reply.headers['x-request-id']}", admin=True)).json["request"]
    assert notified["outcome"] == "completed"
    assert notified["decisions"][0]["deployment"] == "small"
    assert notified["stages"][0]["stage"] == "read"
    hit = await stack.call(chat(stream=True))
    cached = (await stack.get(f"/admin/api/requests/{hit.headers['x-request-id']}", admin=True)).json["request"]
    assert cached["cache_entry"] == reply.headers["x-request-id"]


async def test_requests_are_listed_newest_first_and_filtered(stack: Stack) -> None:
    for model in ("auto", "nobody", "auto"):
        await stack.call(chat(model))
    listed = (await stack.get("/admin/api/requests", admin=True)).json["requests"]
    assert [one["outcome"] for one in listed] == ["cached", "rejected", "completed"]
    only = (await stack.get("/admin/api/requests?outcome=cached&lane=interactive", admin=True)).json["requests"]
    assert [one["outcome"] for one in only] == ["cached"]


async def test_unknown_requests_and_deployments_are_404(stack: Stack) -> None:
    assert (await stack.get("/admin/api/requests/req_0", admin=True)).status == 404
    body = {"drain": True}
    assert (await stack.call(body, admin=True, path="/admin/api/deployments/none/drain")).status == 404
    assert (await stack.get("/admin/api/deployments/small/drain", admin=True)).status == 405
