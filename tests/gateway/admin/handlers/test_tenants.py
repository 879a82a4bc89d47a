"""Tenants at the admin API: a new one is a revision, and none is made twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.gateway.admin.handlers.test_policy import in_force, stored
from tests.gateway.admin.test_access import get, post
from tests.gateway.stack import Stack


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[tuple[Stack, dict[str, str]]]:
    """A gateway with its policy in the store, and the tag of that."""
    async with stored(folder) as stack:
        yield stack, {"if-match": (await in_force(stack))["etag"]}


async def test_a_new_tenant_is_a_revision_of_its_own_and_can_have_keys_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, tag):
        done = await post(stack, "tenants", {"id": "shop", "models": ["auto"], "reason": "a customer"}, tag)
        assert done.status == 200
        tenant = next(one for one in (await get(stack, "tenants")).json["tenants"] if one["id"] == "shop")
        assert (tenant["models"], tenant["keys"], tenant["requests_last_day"]) == (
            ["auto"],
            {"document": 0, "store": 0},
            0,
        )
        assert (await post(stack, "keys", {"tenant": "shop"})).status == 201
        tenant = next(one for one in (await get(stack, "tenants")).json["tenants"] if one["id"] == "shop")
        assert tenant["keys"] == {"document": 0, "store": 1}


async def test_keys_that_are_revoked_or_expired_are_not_counted(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, tag):
        await post(stack, "tenants", {"id": "shop", "reason": "a customer"}, tag)
        await post(stack, "keys", {"tenant": "shop", "id": "leaked"})
        await post(stack, "keys", {"tenant": "shop", "id": "good"})
        await post(stack, "keys", {"tenant": "shop", "id": "short", "expires_in_s": 1e-6})
        await post(stack, "keys/shop/leaked/revoke", {"reason": "leaked"})
        tenant = next(one for one in (await get(stack, "tenants")).json["tenants"] if one["id"] == "shop")
        assert tenant["keys"] == {"document": 0, "store": 1}


async def test_a_tenant_is_made_once_and_not_without_a_reason(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, tag):
        bare = await post(stack, "tenants", {"id": "shop"}, tag)
        assert (bare.status, "reason" in bare.error["message"]) == (400, True)
        await post(stack, "tenants", {"id": "shop", "reason": "first"}, tag)
        now = {"if-match": (await in_force(stack))["etag"]}
        again = await post(stack, "tenants", {"id": "shop", "reason": "second"}, now)
        assert (again.status, again.error["code"]) == (409, "tenant_exists")


async def test_a_tenant_with_an_impossible_name_changes_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, tag):
        reply = await post(stack, "tenants", {"id": "No Such Name", "reason": "why not"}, tag)
        assert reply.status == 400
        assert {"if-match": (await in_force(stack))["etag"]} == tag
