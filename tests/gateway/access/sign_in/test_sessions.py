"""Sessions of the admin pages: until they end, and then everywhere."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.test_access import gateway, get, log_in, post, with_admins


async def test_a_session_ends_by_logout_by_a_new_password_and_with_its_admin(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        one, two, three = [await log_in(stack, "editor") for _ in range(3)]
        assert (await post(stack, "logout", {}, one)).status == 200
        assert (await get(stack, "policy", one)).status == 401
        assert (await post(stack, "admins/editor", {"role": "admin"}, two)).status == 403
        assert (await post(stack, "admins/editor", {"password": "another long one"}, two)).status == 200
        assert (await get(stack, "policy", three)).status == 401
        four = await log_in(stack, "editor", "another long one")
        assert (await stack.call(admin=True, path="/admin/api/admins/editor", method="DELETE")).status == 200
        assert (await get(stack, "policy", four)).status == 401
        last = await stack.call(admin=True, path="/admin/api/admins/admin", method="DELETE")
        assert (last.status, last.error["code"]) == (409, "last_admin")
