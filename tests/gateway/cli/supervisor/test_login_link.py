"""The login link that `penstock up` prints."""

from __future__ import annotations

from pathlib import Path

import httpx

from gateway.cli.supervisor.held_address import HeldAddress
from gateway.cli.supervisor.login_link import login_line, login_link

TOKEN = "t" * 40


def at(address: str) -> HeldAddress:
    return HeldAddress(shown=address, sockets=())


def transport(status: int, body: object) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert (request.method, request.url.path) == ("POST", "/admin/api/login/links")
        return httpx.Response(status, json=body)

    return httpx.MockTransport(answer)


async def test_the_line_has_a_link_to_paste_and_states_how_long_it_works(tmp_path: Path) -> None:
    token_file = tmp_path / "admin.token"
    token_file.write_text(f"{TOKEN}\n")
    made = transport(201, {"path": "/admin/login#link=s3cret", "expires_in_s": 600})
    line = await login_line(at("0.0.0.0:8081"), token_file, transport=made)
    assert line is not None
    assert line.startswith("sign in: http://127.0.0.1:8081/admin/login#link=s3cret (works once, within 10 minutes;")


async def test_there_is_no_link_where_the_gateway_makes_none(tmp_path: Path) -> None:
    token_file = tmp_path / "admin.token"
    assert await login_link(at("127.0.0.1:8081"), token_file) is None  # no token to make one with
    token_file.write_text(TOKEN)
    assert await login_link(at("unix:/run/admin.sock"), token_file) is None
    refused = transport(409, {"error": {"code": "not_local"}})
    assert await login_line(at("127.0.0.1:8081"), token_file, transport=refused) is None
