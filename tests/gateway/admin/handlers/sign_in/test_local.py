"""Sign-in on this machine: by a login link, once; by the admin token, once a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.admin.test_access import NOBODY, gateway, get, post, with_admins
from tests.gateway.stack import Reply, Stack


async def new_link(stack: Stack) -> str:
    made = await post(stack, "login/links", {})
    assert made.status == 201
    assert made.json["expires_in_s"] <= 600
    page, _, secret = made.json["path"].partition("#link=")
    assert page == "/admin/login"
    return str(secret)


async def redeem(stack: Stack, link: str, headers: dict[str, Any] | None = None) -> Reply:
    return await post(stack, "login/links/redeem", {"link": link}, {**NOBODY, **(headers or {})})


def session_of(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200
    return {
        "authorization": None,
        "cookie": reply.headers["set-cookie"].partition(";")[0],
        "x-csrf-token": reply.json["csrf_token"],
    }


async def test_a_login_link_signs_in_once_and_its_refusal_names_the_remedy(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        await with_admins(stack)
        link = await new_link(stack)
        session = session_of(await redeem(stack, link))
        assert (await get(stack, "session", session)).json["admin"] == {"name": "local", "role": "admin"}
        assert (await post(stack, "keys", {"tenant": "shop"}, session)).status == 201
        for used in (link, "made-up"):
            refused = await redeem(stack, used)
            assert (refused.status, refused.error["code"]) == (401, "bad_login_link")
            assert "penstock admin link" in refused.error["message"]
        entries = (await get(stack, "audit", session)).json["entries"]
        assert [entry["action"] for entry in entries[-3:]] == ["login.link", "login", "key.create"]
        assert entries[-2]["detail"] == {"by": "link"}


async def test_a_login_link_is_stored_as_a_hash_and_ends_by_itself(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        link = await new_link(stack)
        store = stack.gateway._stores.control
        (name,) = await store.keys("login_links")
        entry = await store.get("login_links", name)
        assert entry is not None
        assert link not in name
        assert link.encode() not in entry.value
        await store.delete("login_links", name)  # as its time to live does
        assert (await redeem(stack, link)).error["code"] == "bad_login_link"


async def test_a_login_link_is_for_this_machine_alone(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        link = await new_link(stack)
        assert (await redeem(stack, link, {"x-forwarded-for": "10.0.0.9"})).status == 401
        assert (await redeem(stack, link)).status == 200
        forwarded = {"x-forwarded-for": "10.0.0.9", "authorization": f"Bearer {stack.admin_token}"}
        refused = await post(stack, "login/links", {}, forwarded)
        assert (refused.status, refused.error["code"]) == (409, "not_local")


async def test_only_the_holder_of_the_admin_token_makes_login_links(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        assert (await post(stack, "login/links", {}, NOBODY)).status == 401
        await with_admins(stack)
        body = {"name": "admin", "password": "correct horse battery"}
        session = session_of(await post(stack, "login", body, NOBODY))
        refused = await post(stack, "login/links", {}, session)
        assert (refused.status, refused.error["code"]) == (403, "role_too_low")


async def test_the_admin_token_is_given_once_a_session(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        shown = (await get(stack, "session")).json
        assert (shown["mode"], shown["login"]["token_path"]) == ("open", str(tmp_path / "admin.token"))
        wrong = await post(stack, "login/token", {"token": "not this one"}, NOBODY)
        assert (wrong.status, wrong.error["code"]) == (401, "bad_login")
        session = session_of(await post(stack, "login/token", {"token": f" {stack.admin_token} "}, NOBODY))
        for _ in range(2):
            assert (await post(stack, "keys", {"tenant": "shop"}, session)).status == 201
        without_proof = {**session, "x-csrf-token": None}
        assert (await post(stack, "keys", {"tenant": "shop"}, without_proof)).error["code"] == "csrf_failed"
        assert (await post(stack, "logout", {}, session)).status == 200
        assert (await post(stack, "keys", {"tenant": "shop"}, session)).status == 401


async def test_only_this_machine_learns_the_path_of_the_token(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        shown = (await get(stack, "session", {"x-forwarded-for": "10.0.0.9"})).json
        assert shown["login"]["token_path"] is None


async def test_a_new_admin_token_ends_the_sessions_and_links_of_the_old_one(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        link = await new_link(stack)
        session = session_of(await post(stack, "login/token", {"token": stack.admin_token}, NOBODY))
        token = stack.gateway.control.token
        token.path.unlink()
        token.ensure()
        assert (await post(stack, "keys", {"tenant": "shop"}, session)).status == 401
        assert (await redeem(stack, link)).status == 401


async def test_attempts_are_limited(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        statuses = [(await redeem(stack, "made-up")).status for _ in range(25)]
        assert statuses[:20] == [401] * 20
        assert statuses[-1] == 429
