"""Who counts as local at the admin listener, and what everybody else gets without a login: probes and the login."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.app.app import Gateway
from gateway.config.checks import ConfigError
from gateway.config.sources import config_of
from gateway.http.asgi import Message, Scope
from tests.gateway.admin.test_access import PASSWORD
from tests.gateway.stack import Reply, Stack, encode, policy_text, running

TOKEN = "t0ken-" + "a" * 40
SCRAPER = "scr4per-" + "b" * 40
DATA = (
    *("/metrics", "/openapi.json", "/admin", "/admin/", "/admin/policy", "/admin/requests", "/admin/nothing"),
    *("/admin/api/policy", "/admin/api/overview", "/admin/api/requests", "/admin/api/deployments", "/admin/api/load"),
    *("/admin/api/live?topic=overview", "/admin/api/tenants", "/admin/api/keys", "/admin/api/audit"),
    *("/admin/api/diagnosis?seconds=0.2", "/admin/api/admins", "/admin/api/tokens", "/admin/api/nothing", "/nothing"),
)
CHANGES = (
    ("POST", "/admin/api/admins", {"name": "eve", "role": "admin", "password": PASSWORD}),
    ("POST", "/admin/api/keys", {"tenant": "shop"}),
    ("POST", "/admin/api/cache/purge", {"route": "main", "dry_run": False}),
    ("POST", "/admin/api/deployments/small/drain", {"drain": True, "reason": "x"}),
    ("PUT", "/admin/api/policy", {"document": "x", "reason": "x"}),
    ("DELETE", "/admin/api/admins/anna", None),
)
LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
STRANGERS = ["192.0.2.7", "10.0.0.1", "172.17.0.1", "::ffff:192.0.2.7", "2001:db8::1", "fe80::1%eth0", "0.0.0.0", "x"]
PROXIED = [
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-for": "203.0.113.9"},
    {"forwarded": "for=127.0.0.1"},
    {"x-real-ip": "127.0.0.1"},
    {"via": "1.1 proxy"},
    {"x-forwarded-host": "localhost"},
    {"x-forwarded-proto": "https"},
]
FOREIGN = ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost"]


async def call(
    gateway: Gateway,
    path: str,
    *,
    peer: str,
    host: str = "127.0.0.1:8081",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    app: int = 1,
) -> Reply:
    """One request to a listener's application, as its server would hand it over."""
    raw_path, _, query = path.partition("?")
    given = {"host": host, **(headers or {})}
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": (peer, 4711),
        "state": {},
    }
    sent: list[Message] = []
    body = b'{"name": "anna", "password": "x"}'

    async def receive() -> Message:
        return {"type": "http.request", "body": body if method == "POST" else b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await asyncio.wait_for(gateway.server._listeners[app].app(scope, receive, send), 10)
    head = [f"HTTP/1.1 {sent[0]['status']} x"] + [f"{n.decode()}: {v.decode()}" for n, v in sent[0]["headers"]]
    return Reply("\r\n".join([*head, "", ""]).encode() + b"".join(part.get("body", b"") for part in sent[1:]))


@asynccontextmanager
async def local_gateway(folder: Path, **settings: Any) -> AsyncIterator[Stack]:
    """On loopback TCP, as `penstock up` has it."""
    async with running(folder, settings={"admin.listen": "127.0.0.1:0", **settings}) as stack:
        yield stack


@asynccontextmanager
async def remote_gateway(folder: Path, **settings: Any) -> AsyncIterator[Stack]:
    """Open to other machines, with both tokens in files, as the deploy folders have it."""
    (folder / "given.token").write_text(TOKEN + "\n")
    (folder / "metrics.token").write_text(SCRAPER + "\n")
    files = {"admin.token_file": folder / "given.token", "admin.metrics_token_file": folder / "metrics.token"}
    policy = policy_text(folder) + f'tenants:\n  - {{id: shop, keys: [{{id: k, sha256: "{"0" * 64}"}}]}}\n'
    given = {"admin.listen": "0.0.0.0:0", "admin.allow_remote": True, **files, **settings}
    async with running(folder, policy=policy, settings=given) as stack:
        yield stack


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("peer", LOOPBACK)
async def test_this_machine_reads_without_a_login_until_there_is_an_admin(tmp_path: Path, peer: str) -> None:
    async with local_gateway(tmp_path) as stack:
        for path in ("/metrics", "/openapi.json", "/admin/", "/admin/api/policy", "/admin/api/overview"):
            for host in ("127.0.0.1:8081", "localhost:8081", "[::1]:8081", "LOCALHOST"):
                assert (await call(stack.gateway, path, peer=peer, host=host)).status == 200
        assert (await call(stack.gateway, "/readyz", peer=peer)).json["deployments"] == {"small": True, "large": True}


@pytest.mark.parametrize("allows_remote", [False, True])
async def test_a_stranger_reads_and_changes_nothing_before_there_is_an_admin(
    tmp_path: Path, allows_remote: bool
) -> None:
    """Without `admin.allow_remote` no stranger should be there at all, as in a network namespace with odd routes."""
    opened = remote_gateway(tmp_path) if allows_remote else local_gateway(tmp_path)
    async with opened as stack:
        for peer in STRANGERS:
            await assert_closed(stack.gateway, peer=peer)


@pytest.mark.parametrize("headers", PROXIED, ids=lambda headers: next(iter(headers)))
async def test_a_proxy_on_this_machine_makes_nobody_local(tmp_path: Path, headers: dict[str, str]) -> None:
    async with local_gateway(tmp_path) as stack:
        await assert_closed(stack.gateway, peer="127.0.0.1", headers=headers)


async def test_with_remote_callers_allowed_a_loopback_peer_may_be_a_sidecar(tmp_path: Path) -> None:
    async with remote_gateway(tmp_path) as stack:
        await assert_closed(stack.gateway, peer="127.0.0.1")
        assert (await call(stack.gateway, "/admin/api/policy", peer="127.0.0.1", headers=bearer(TOKEN))).status == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_page_whose_name_was_pointed_here_gets_nothing(tmp_path: Path, host: str) -> None:
    async with local_gateway(tmp_path) as stack:
        await assert_closed(stack.gateway, peer="127.0.0.1", host=host)
        for path in ("/admin/login", "/admin/api/session", "/admin/static/icon.svg"):
            refused = await call(stack.gateway, path, peer="127.0.0.1", host=host)
            assert (refused.status, refused.error["code"]) == (403, "foreign_host")
        login = await call(stack.gateway, "/admin/api/login", peer="127.0.0.1", host=host, method="POST")
        assert (login.status, login.error["code"]) == (403, "foreign_host")
        for path in ("/livez", "/readyz"):
            assert (await call(stack.gateway, path, peer="192.0.2.7", host=host)).status == 200
        tried = await call(
            stack.gateway, "/admin/api/login", peer="127.0.0.1", host=host, method="POST", headers=bearer("x" * 40)
        )
        assert (tried.status, tried.error["code"]) == (403, "foreign_host")
        known = await call(stack.gateway, "/metrics", peer="127.0.0.1", host=host, headers=bearer(stack.admin_token))
        assert known.status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://"])
async def test_a_page_of_another_origin_gets_nothing(tmp_path: Path, origin: str) -> None:
    async with local_gateway(tmp_path) as stack:
        for path in (*DATA[:-1], "/admin/api/session", "/admin/login"):
            refused = await call(stack.gateway, path, peer="127.0.0.1", headers={"origin": origin})
            assert (refused.status, refused.error["code"]) == (403, "csrf_failed"), path
        own = {"origin": "http://127.0.0.1:8081"}
        assert (await call(stack.gateway, "/metrics", peer="127.0.0.1", headers=own)).status == 200


async def test_the_name_that_browsers_know_the_listener_by_is_its_own(tmp_path: Path) -> None:
    names = {"admin.oidc.issuer": "https://i.example", "admin.oidc.client_id": "c"}
    url = "https://admin.example/admin/api/oidc/callback"
    async with local_gateway(tmp_path, **names, **{"admin.oidc.redirect_url": url}) as stack:
        page = await call(stack.gateway, "/admin/login", peer="127.0.0.1", host="admin.example")
        assert page.status == 200
        assert (await call(stack.gateway, "/admin/api/policy", peer="127.0.0.1", host="admin.example")).status == 401
        assert (await call(stack.gateway, "/admin/login", peer="127.0.0.1", host="other.example")).status == 403


async def test_probes_report_strangers_a_status_and_nothing_else(tmp_path: Path) -> None:
    async with remote_gateway(tmp_path) as stack:
        for app in (0, 1):
            for path, status in (("/livez", "live"), ("/readyz", "ready"), ("/startupz", "started")):
                reply = await call(stack.gateway, path, peer="192.0.2.7", host="pod", app=app)
                assert (reply.status, reply.json) == (200, {"status": status})


async def test_each_token_opens_what_it_is_for(tmp_path: Path) -> None:
    async with remote_gateway(tmp_path) as stack:
        for path in DATA:
            reply = await call(stack.gateway, path, peer="192.0.2.7", headers=bearer(SCRAPER))
            assert reply.status == (200 if path == "/metrics" else 401), path
        for path in ("/metrics", "/openapi.json", "/admin/", "/admin/api/policy", "/admin/api/admins"):
            assert (await call(stack.gateway, path, peer="192.0.2.7", headers=bearer(TOKEN))).status == 200
        for scheme in ("Basic", "Token", ""):
            given = {"authorization": f"{scheme} {SCRAPER}".strip()}
            assert (await call(stack.gateway, "/metrics", peer="192.0.2.7", headers=given)).status == 401
        assert not (tmp_path / "admin.token").exists(), "the given one stands in its place"


async def test_a_rotated_token_counts_at_once_and_the_old_one_no_longer(tmp_path: Path) -> None:
    async with remote_gateway(tmp_path) as stack:
        for kind, path in (("given", "/admin/api/policy"), ("metrics", "/metrics")):
            file, old = tmp_path / f"{kind}.token", TOKEN if kind == "given" else SCRAPER
            fresh = tmp_path / "fresh"
            fresh.write_text("n" * 40)
            fresh.replace(file)
            assert (await call(stack.gateway, path, peer="192.0.2.7", headers=bearer(old))).status == 401
            assert (await call(stack.gateway, path, peer="192.0.2.7", headers=bearer("n" * 40))).status == 200
            file.write_text("")
            for token in (old, "n" * 40, ""):
                assert (await call(stack.gateway, path, peer="192.0.2.7", headers=bearer(token))).status == 401


@pytest.mark.parametrize("key", ["admin.token_file", "admin.metrics_token_file"])
@pytest.mark.parametrize("content", [None, "", "short\n"])
def test_a_token_file_that_holds_no_token_ends_the_start(tmp_path: Path, key: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / "given.token").write_text(content)
    config = config_of({key: tmp_path / "given.token", "process.runtime_dir": tmp_path})
    with pytest.raises(ConfigError, match=rf"{key}: .*given.token"):
        Gateway(config, log_stream=io.BytesIO())


async def test_over_real_sockets_only_a_token_opens_the_listener_to_another_address(tmp_path: Path) -> None:
    own = _own_address()
    if own is None:
        pytest.skip("this machine has no address but loopback")
    async with remote_gateway(tmp_path) as stack:
        port = int(stack.gateway.server.addresses["admin"][0].rpartition(":")[2])
        for address in (own, "127.0.0.1"):
            for host in (f"{address}:{port}", "localhost", "127.0.0.1"):
                for path in DATA:
                    reply = await over_tcp(address, port, path, {"host": host})
                    assert reply.status in (303, 401), (path, reply.status)
                assert (await over_tcp(address, port, "/livez", {"host": host})).status == 200
            for method, path, body in CHANGES:
                assert (await over_tcp(address, port, path, {}, method=method, body=body)).status == 401
            assert (await over_tcp(address, port, "/metrics", bearer(SCRAPER))).status == 200
            admin = {"name": "anna", "role": "admin", "password": PASSWORD, "oidc_subject": address}
            made = await over_tcp(address, port, "/admin/api/admins", bearer(TOKEN), method="POST", body=admin)
            assert made.status == (201 if address == own else 409)


async def over_tcp(
    address: str, port: int, path: str, headers: dict[str, str], *, method: str = "GET", body: Any = None
) -> Reply:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(encode(body, path=path, method=method, headers=headers))
    raw = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return Reply(raw)


async def assert_closed(gateway: Gateway, **how: Any) -> None:
    """No data and no change; a browser is sent to log in."""
    for path in DATA:
        reply = await call(gateway, path, **how)
        assert reply.status in (303, 401, 403), (how, path, reply.status)
        assert b"schema_version" not in reply.body
        assert b"penstock_" not in reply.body
        assert (await call(gateway, path, method="HEAD", **how)).status in (303, 401, 403)
    for method, path, _ in CHANGES:
        assert (await call(gateway, path, method=method, **how)).status in (401, 403), path
    assert not gateway.control.directory.accounts.has_admins


def _own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
    return None if found.startswith("127.") else found
