"""Fields of submitted documents: errors name their place."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.admin.test_access import gateway, get, post


async def test_what_is_wrong_with_a_form_is_stated_in_words(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        anna = {"name": "anna", "role": "admin", "password": "short"}
        assert (await post(stack, "admins", anna)).error["message"] == "password: expected at least 10 characters."
        bad = (await post(stack, "admins", {**anna, "name": "a b"})).error
        assert bad["message"].startswith("name: expected 1 to 64 of letters, digits")
        assert bad["param"] == "name"
        reply = await get(stack, "policy/revisions/first")
        assert (reply.status, "-1" in reply.error["message"]) == (404, False)
