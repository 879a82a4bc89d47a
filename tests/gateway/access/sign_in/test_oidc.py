"""Logging in with an identity provider: a scripted one, which can also lie."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.gateway.stack import Reply, Stack, running

CLIENT = "penstock"
CALLBACK = "http://localhost/admin/api/oidc/callback"
KEY = RSAKey.generate_key(2048, {"kid": "k1"})
STRANGER = RSAKey.generate_key(2048, {"kid": "k1"})


class Provider:
    """Signs for whoever comes; `lie` changes what it states, `key` what it signs with."""

    def __init__(self) -> None:
        self.nonce = ""
        self.challenge = ""
        self.lie: dict[str, Any] = {}
        self.key = KEY
        self.algorithm = "RS256"

    async def start(self) -> None:
        """On a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.issuer = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Nobody answers any more."""
        self._server.close()
        await self._server.wait_closed()

    def claims(self) -> dict[str, Any]:
        """Of the next id token."""
        now = int(time.time())
        notified = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "anna-7",
            "iat": now,
            "exp": now + 300,
            "nonce": self.nonce,
        }
        return {**notified, **self.lie}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        body = json.dumps(self._answer(head.split(" ")[1], (await reader.readexactly(length)).decode())).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    def _answer(self, path: str, body: str) -> dict[str, Any]:
        if path.endswith("/openid-configuration"):
            names = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            return {"issuer": self.issuer, **{name: self.issuer + path for name, path in names.items()}}
        if path == "/keys":
            return dict(KeySet([KEY]).as_dict(private=False))
        form = parse_qs(body)
        digest = sha256(form["code_verifier"][0].encode()).digest()
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != self.challenge:
            return {"error": "invalid_grant"}
        token = jwt.encode({"alg": self.algorithm, "kid": "k1"}, self.claims(), self.key)
        return {"access_token": "a", "token_type": "Bearer", "id_token": token}


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[tuple[Stack, Provider]]:
    provider = Provider()
    await provider.start()
    settings = {
        "admin.oidc.issuer": provider.issuer,
        "admin.oidc.client_id": CLIENT,
        "admin.oidc.redirect_url": CALLBACK,
    }
    try:
        async with running(folder, settings=settings) as stack:
            admin = {"name": "anna", "role": "admin", "oidc_subject": f"{provider.issuer} anna-7"}
            assert (await stack.call(admin, admin=True, path="/admin/api/admins")).status == 201
            yield stack, provider
    finally:
        await provider.close()


async def come_back(stack: Stack, provider: Provider, *, state: str | None = None, page: str = "") -> tuple[Reply, str]:
    """A browser's way to the provider and back; the answer and the callback's query."""
    begun = await stack.get(f"/admin/api/oidc/start?next={quote(page, safe='')}", admin=True)
    assert begun.status == 303
    requested = parse_qs(urlsplit(begun.headers["location"]).query)
    assert (requested["client_id"], requested["code_challenge_method"]) == ([CLIENT], ["S256"])
    provider.nonce, provider.challenge = requested["nonce"][0], requested["code_challenge"][0]
    query = f"code=c0de&state={state or requested['state'][0]}"
    cookie = begun.headers["set-cookie"].partition(";")[0]
    return await stack.get(f"/admin/api/oidc/callback?{query}", admin=True, headers={"cookie": cookie}), query


async def test_an_admin_that_the_provider_names_is_logged_in(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        notified = (await stack.get("/admin/api/session", admin=True)).json
        assert notified["login"]["oidc"] == "/admin/api/oidc/start"
        done, _ = await come_back(stack, provider)
        assert done.status == 200
        assert b'content="0;url=/admin/"' in done.body
        entries = (await stack.get("/admin/api/audit", admin=True, headers=_local(stack))).json["entries"]
        assert entries[-1]["action"] == "login"


async def test_the_login_leads_to_the_requested_page_and_never_to_another_site(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        done, _ = await come_back(stack, provider, page="/admin/requests?outcome=shed&lane=batch")
        assert b'content="0;url=/admin/requests?outcome=shed&amp;lane=batch"' in done.body
        for page in ("https://evil.example/", "//evil.example", '/admin/"><script>', "/admin/api/logout"):
            done, _ = await come_back(stack, provider, page=page)
            assert b'content="0;url=/admin/"' in done.body


LIES: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://elsewhere"},
    "another client": {"aud": "somebody-else"},
    "an old token": {"exp": 1_000_000_000},
    "another login": {"nonce": "replayed"},
}


async def test_a_token_that_is_not_for_this_login_opens_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        for lie in LIES.values():
            provider.lie = lie
            refused, _ = await come_back(stack, provider)
            assert (refused.status, refused.error["code"]) == (401, "not_logged_in")
        provider.lie, provider.key = {}, STRANGER
        assert (await come_back(stack, provider))[0].status == 401
        provider.key = KEY
        assert (await come_back(stack, provider))[0].status == 200


async def test_a_state_is_good_once_and_in_the_browser_that_has_it(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        _, query = await come_back(stack, provider)
        path = f"/admin/api/oidc/callback?{query}"
        cookie = {"cookie": f"penstock_oidc={parse_qs(query)['state'][0]}"}
        assert (await stack.get(path, admin=True, headers=cookie)).status == 401
        assert (await stack.get(path, admin=True)).status == 401
        assert (await come_back(stack, provider, state="guessed"))[0].status == 401


async def test_being_known_to_the_provider_alone_opens_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        provider.lie = {"sub": "bert-8"}
        refused, _ = await come_back(stack, provider)
        assert (refused.status, refused.error["code"]) == (403, "role_too_low")
        assert "bert-8" in refused.error["message"]


async def test_a_provider_that_does_not_answer_is_reported_plainly(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (stack, provider):
        await provider.close()
        refused = await stack.get("/admin/api/oidc/start", admin=True)
        assert (refused.status, "cannot be used" in refused.error["message"]) == (401, True)
        await provider.start()


def _local(stack: Stack) -> dict[str, str]:
    return {"authorization": f"Bearer {stack.admin_token}"}
