"""Admins and API tokens at the admin API."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.test_access import gateway, get, log_in, post, with_admins


async def test_a_token_can_do_what_its_admin_can_or_less(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        session = await log_in(stack, "editor")
        made = (await post(stack, "tokens", {"name": "ci", "role": "admin"}, session)).json
        assert made["role"] == "editor"
        bearer = {"authorization": f"Bearer {made['token']}"}
        assert (await post(stack, "keys", {"tenant": "shop"}, bearer)).status == 201
        assert (await get(stack, "admins", bearer)).status == 403
        assert (await post(stack, "admins/editor", {"role": "viewer"})).status == 200
        assert (await post(stack, "keys", {"tenant": "shop"}, bearer)).status == 403
        assert (await stack.call(admin=True, path=f"/admin/api/tokens/{made['id']}", method="DELETE")).status == 200
        assert (await get(stack, "policy", bearer)).status == 401
