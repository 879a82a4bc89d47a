"""Every change at the admin listener is in the audit log before it is made; without the log there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.access.audit_log import LOG, SPACE
from gateway.admin.routes import GuardedPath
from gateway.store.base import Store
from gateway.telemetry.records.answer_log import find_answer
from tests.gateway.admin.test_access import NOBODY, PASSWORD, log_in, post
from tests.gateway.background.test_shadowing import answering
from tests.gateway.cache.audit.test_audit_journal import record
from tests.gateway.forwarding.test_cascade import POLICY
from tests.gateway.replay.replay_stack import SETTINGS
from tests.gateway.stack import Stack, chat, running

API: Final = "/admin/api"
HARMLESS: Final = {
    *(("POST", f"{API}/policy/{name}") for name in ("check", "diff", "edit", "patch", "plan")),
    ("POST", f"{API}/explain"),  # a preview
    ("POST", f"{API}/logout"),  # the caller's own session, which must end in any case
}
ELSEWHERE: Final = {
    *(("POST", f"{API}/policy/canary/{name}") for name in ("promote", "stop")),  # tests/gateway/policies/test_canary.py
    ("POST", f"{API}/policy/rollback"),  # as PUT of a policy: PolicyHandlers.change
}
WATCHED: Final = ("access", "drains", "members", "policy", "sessions")
"""Spaces of the store that hold what operators decide."""


class Change(NamedTuple):
    """A request that changes something; `path` is the one that fills the endpoint's."""

    endpoint: str
    path: str
    body: Any
    method: str = "POST"
    headers: Mapping[str, Any] = {}


async def test_nothing_is_changed_that_the_audit_log_cannot_take(tmp_path: Path) -> None:
    settings = {**SETTINGS, "policy.source": "store"}
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), settings=settings) as stack:
        changes = await prepared(stack, tmp_path)
        assert {(change.method, API + change.endpoint) for change in changes} == await changing(stack)
        store = stack.gateway.control.audit._store
        await store.append(SPACE, LOG, b"{")
        before, received = await decided(stack, store), len(stack.small.received)
        for change in changes:
            reply = await stack.call(
                change.body, admin=True, path=API + change.path, method=change.method, headers=dict(change.headers)
            )
            assert (reply.status, reply.json["error"]["code"]) == (409, "audit_broken"), (change, reply.body)
            assert await decided(stack, store) == before, change
        assert len(stack.small.received) == received, "no engine got an order"


async def prepared(stack: Stack, folder: Path) -> list[Change]:
    """Make something that each change could change; return the changes."""
    stack.small.otherwise = answering("the sum is 12")
    sent = (await stack.call(chat(temperature=0))).headers["x-request-id"]
    for name in ("anna", "berta"):
        body = {"name": name, "role": "admin", "password": PASSWORD}
        assert (await post(stack, "admins", body)).status == 201
    session = await log_in(stack, "anna")
    token = (await post(stack, "tokens", {"name": "ci"}, session)).json
    link = (await post(stack, "login/links", {})).json["path"].partition("#link=")[2]
    assert (await post(stack, "keys", {"tenant": "dev", "id": "one"})).status == 201
    assert (await post(stack, "keys", {"tenant": "dev", "id": "two"})).status == 201
    stack.gateway._cache.audits.add(record(1), 1000.0)
    small = next(live for live in stack._live() if live.id == "small")
    small.note_adapters({"tax"})
    bearer = {"authorization": f"Bearer {stack.admin_token}"}
    policy = (await stack.get(f"{API}/policy", admin=True, headers=bearer)).json
    document, seen = policy["document"], {**bearer, "if-match": policy["etag"]}
    async with asyncio.timeout(10):  # a thread writes the recording
        while (answer := await asyncio.to_thread(find_answer, folder / "recorded" / "answers", sent)) is None:
            await asyncio.sleep(0.02)
    canary = {"document": document.replace("0.8", "0.7"), "reason": "x", "percent": 10}
    return [
        Change("/deployments/{name}/drain", "/deployments/small/drain", {"drain": True}),
        Change("/deployments/{name}/adapters", "/deployments/small/adapters", {"adapter": "law", "path": "law"}),
        Change("/deployments/{name}/adapters/{adapter}", "/deployments/small/adapters/tax", None, "DELETE"),
        Change("/members/{list}", "/members/pool", {"members": ["10.0.0.1:8000"]}, "PUT"),
        Change("/admins", "/admins", {"name": "carla", "password": PASSWORD}),
        Change("/admins/{name}", "/admins/berta", {"role": "viewer"}),
        Change("/admins/{name}", "/admins/berta", None, "DELETE"),
        Change("/tokens", "/tokens", {"name": "cd"}, headers=session),
        Change("/tokens/{id}", f"/tokens/{token['id']}", None, "DELETE"),
        Change("/login", "/login", {"name": "anna", "password": PASSWORD}, headers=NOBODY),
        Change("/login/token", "/login/token", {"token": stack.admin_token}, headers=NOBODY),
        Change("/login/links", "/login/links", {}),
        Change("/login/links/redeem", "/login/links/redeem", {"link": link}, headers=NOBODY),
        Change("/keys", "/keys", {"tenant": "dev", "id": "three"}),
        Change("/keys/{tenant}/{id}/rotate", "/keys/dev/one/rotate", {}),
        Change("/keys/{tenant}/{id}/revoke", "/keys/dev/one/revoke", {}),
        Change("/keys/requirement", "/keys/requirement", {"required": True}),
        Change("/tenants", "/tenants", {"id": "bank", "reason": "new"}, headers=seen),
        Change("/policy", "/policy", {"document": document + "#\n", "reason": "x"}, "PUT", headers=seen),
        Change("/policy/canary", "/policy/canary", canary, headers=seen),
        Change("/cache/audits/{id}", "/cache/audits/req_1", {"verdict": "right"}),
        Change("/cache/purge", "/cache/purge", {"route": "stairs", "dry_run": False}),
        Change("/routing/cascades/take-back", "/routing/cascades/take-back", {"weak": "tiny", "strong": "big"}),
        Change("/replay", "/replay", {"record": msgspec.to_builtins(answer)}),
    ]


async def changing(stack: Stack) -> set[tuple[str, str]]:
    """Return method and path of every endpoint that may change something."""
    application = stack.gateway.server._listeners[1].app
    assert isinstance(application, Starlette)
    guarded = [route.endpoint for route in application.routes if isinstance(route, Route)]
    paths = [endpoint for endpoint in guarded if isinstance(endpoint, GuardedPath)]
    found = {(method, path.path) for one in paths for method, path in one._endpoints.items() if method != "GET"}
    assert found >= HARMLESS | ELSEWHERE
    return found - HARMLESS - ELSEWHERE


async def decided(stack: Stack, store: Store) -> Any:
    """Return the state that changes would change: in the store and in this process."""
    keys = [(space, key) for space in WATCHED for key in await store.keys(space)]
    entries = {(space, key): await store.get(space, key) for space, key in keys}
    live = [(one.id, one.is_draining, sorted(one.adapters)) for one in stack._live()]
    reviewed = [one.verdict for one in stack.gateway._cache.audits]
    return entries, live, reviewed
