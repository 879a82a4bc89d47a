"""Keys at the admin API: made, shown once, rotated and revoked while everything runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tests.gateway.admin.test_access import gateway, get, post
from tests.gateway.stack import Stack, chat, policy_text, running

PATIENCE_S = 30.0


async def test_a_key_is_good_when_it_is_shown_and_bad_everywhere_when_it_is_revoked(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    async with gateway(tmp_path / "one", store) as one, gateway(tmp_path / "two", store) as two:
        made = await post(one, "keys", {"tenant": "shop", "id": "web"})
        assert made.status == 201
        key = {"authorization": f"Bearer {made.json['key']}"}
        assert (await one.call(chat("solo"), headers=key)).status == 200
        assert (await one.call(chat("auto"), headers=key)).status == 403
        await until(two, key, 200)
        assert (await post(two, "keys/shop/web/revoke", {"reason": "leaked"})).json["state"] == "revoked"
        assert (await two.call(chat("solo"), headers=key)).status == 401
        await until(one, key, 401)
        document_key = {"authorization": "Bearer sk-in-the-document"}
        assert (await one.call(chat(), headers=document_key)).status == 200
        (shown,) = (await get(one, "keys?tenant=shop")).json["keys"]
        assert (shown["state"], shown["revoked_by"]) == ("revoked", "local")
        text = json.dumps((await get(one, "audit")).json) + json.dumps((await get(one, "keys")).json)
        assert made.json["key"] not in text
        assert sha256(made.json["key"].encode()).hexdigest() not in text


async def until(stack: Stack, key: Mapping[str, str], status: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while (await stack.call(chat("solo"), headers=dict(key))).status != status:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


async def test_a_rotated_key_and_its_successor_are_both_good_for_a_while(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        old = (await post(stack, "keys", {"tenant": "shop", "id": "web"})).json["key"]
        new = (await post(stack, "keys/shop/web/rotate", {"overlap_s": 3600})).json["key"]
        for key in (old, new):
            assert (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status == 200
        newest = (await post(stack, "keys/shop/web/rotate", {"overlap_s": 0})).json["key"]
        notified = [
            (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status for key in (old, newest)
        ]
        assert notified == [401, 200]
        again = await post(stack, "keys/shop/web/rotate", {"overlap_s": 0})
        assert (again.status, again.error["code"]) == (409, "key_over")


async def test_a_key_past_its_time_is_no_key(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        made = (await post(stack, "keys", {"tenant": "shop", "expires_in_s": 0.001})).json
        await until(stack, {"authorization": f"Bearer {made['key']}"}, 401)


async def test_keys_of_the_document_are_changed_there_and_unknown_tenants_have_none(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        written = await post(stack, "keys/support/k1/revoke", {})
        assert (written.status, written.error["code"]) == (409, "key_in_document")
        assert (await post(stack, "keys", {"tenant": "support", "id": "k1"})).error["code"] == "key_exists"
        assert (await post(stack, "keys", {"tenant": "nobody"})).error["param"] == "tenant"
        assert (await post(stack, "keys/shop/none/revoke", {})).status == 404


async def test_the_first_key_ends_the_open_door(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("routes:\n", "tenants: [{id: shop}]\nroutes:\n")
    async with running(tmp_path, policy=text) as stack:
        assert (await stack.call(chat())).status == 200
        made = (await post(stack, "keys", {"tenant": "shop"})).json
        assert "needs a key" in made["note"]
        assert (await stack.call(chat())).status == 401
        assert (await stack.call(chat(), headers={"authorization": f"Bearer {made['key']}"})).status == 200
        last = await post(stack, f"keys/shop/{made['id']}/revoke", {})
        assert (last.status, last.error["code"]) == (409, "last_key")
        assert (await post(stack, f"keys/shop/{made['id']}/revoke", {"then": "nobody"})).status == 200
        assert (await stack.call(chat())).status == 401  # revoking the last key opens nothing by itself
        assert (await get(stack, "overview")).json["callers"] == {
            "is_required": True,
            "num_usable": 0,
            "why_required": None,
        }


KEYLESS = "tenants: [{id: shop}]\nroutes:\n"


async def test_keys_can_be_handed_out_first_and_required_later(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path).replace("routes:\n", KEYLESS)) as stack:
        made = (await post(stack, "keys", {"tenant": "shop", "required": False})).json
        assert "may still call without a key" in made["note"]
        key = {"authorization": f"Bearer {made['key']}"}
        assert (await stack.call(chat())).status == 200
        assert (await stack.call(chat(), headers=key)).status == 200
        newest = (await get(stack, "requests?limit=2")).json["requests"]
        assert [row["tenant"] for row in newest] == ["shop", "dev"]
        second = (await post(stack, "keys", {"tenant": "shop"})).json
        assert "may still call without a key" in second["note"]
        decided = await post(stack, "keys/requirement", {"required": True, "reason": "all have one"})
        assert decided.json == {"is_required": True, "num_usable": 2, "why_required": None}
        assert (await stack.call(chat())).status == 401
        assert (await stack.call(chat(), headers=key)).status == 200
        assert (await post(stack, f"keys/shop/{made['id']}/revoke", {})).status == 200  # another one is left
        assert (await post(stack, "keys/requirement", {"required": False})).status == 200
        assert (await stack.call(chat())).status == 200
        assert (await stack.call(chat(), headers=key)).status == 401  # a revoked key stays revoked
        actions = [entry["action"] for entry in (await get(stack, "audit")).json["entries"]]
        assert [action for action in actions if action.startswith("keys.")] == [
            "keys.optional",
            "keys.required",
            "keys.optional",
        ]


async def test_keys_are_not_required_before_one_works_and_stay_required_where_the_policy_has_some(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path).replace("routes:\n", KEYLESS)) as stack:
        refused = await post(stack, "keys/requirement", {"required": True})
        assert (refused.status, refused.error["code"]) == (409, "no_usable_key")
    async with gateway(tmp_path) as stack:
        refused = await post(stack, "keys/requirement", {"required": False})
        assert (refused.status, refused.error["code"]) == (409, "keys_stay_required")


async def test_after_the_last_key_this_machine_may_call_without_one_if_its_revocation_wants_it(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path).replace("routes:\n", KEYLESS)) as stack:
        made = (await post(stack, "keys", {"tenant": "shop", "required": True})).json
        assert (await stack.call(chat())).status == 401
        assert (await post(stack, f"keys/shop/{made['id']}/revoke", {"then": "keyless"})).status == 200
        assert (await stack.call(chat())).status == 200


async def test_a_rollback_that_would_leave_nobody_who_may_call_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"policy.source": "store"}) as stack:
        etag = (await get(stack, "policy")).json["etag"]
        seen = {"if-match": etag, "authorization": f"Bearer {stack.admin_token}"}
        assert (await post(stack, "tenants", {"id": "shop", "reason": "first"}, seen)).status == 200
        made = (await post(stack, "keys", {"tenant": "shop", "required": True})).json
        seen["if-match"] = (await get(stack, "policy")).json["etag"]
        back = {"revision": 1, "reason": "after all not"}
        refused = await post(stack, "policy/rollback", back, seen)
        assert (refused.status, refused.error["code"]) == (409, "nobody_could_call")
        assert (await post(stack, "keys/requirement", {"required": False})).status == 200
        assert (await post(stack, "policy/rollback", back, seen)).status == 200
        key = {"authorization": f"Bearer {made['key']}"}
        assert (await stack.call(chat(), headers=key)).status == 200  # its tenant is gone, as for any other text
        assert (await stack.call(chat())).status == 200


async def test_keys_of_the_store_are_good_in_a_gateway_that_starts_without_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        key = (await post(stack, "keys", {"tenant": "shop"})).json["key"]
        copy = tmp_path / "keys.last.json"
        while not await asyncio.to_thread(copy.exists):
            await asyncio.sleep(0.01)
    (tmp_path / "file").write_text("no folder")
    async with gateway(tmp_path, tmp_path / "file" / "store.sqlite3") as stack:
        assert (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status == 200
        assert (await get(stack, "policy")).status == 401  # nobody can state that there are no admins
