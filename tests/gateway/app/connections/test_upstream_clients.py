"""Keys and certificates of upstreams, over real sockets: what a deployment is shown, and what it never sees."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.policies.policy_file import PolicyFileError
from tests.gateway.authority import Authority, make_authority
from tests.gateway.scripted import ScriptedUpstream, Wire
from tests.gateway.stack import Stack, chat, policy_text, running

SECRET = "upstream-key-0123456789abcdef"
CLIENT_KEY = "client-key-0123456789abcdef"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


def with_key(folder: Path, variable: str = "HOSTED_KEY") -> str:
    """The test policy, `small` wanting a key."""
    return policy_text(folder).replace("model: tiny,", f"model: tiny, auth: {{bearer_env: {variable}}},")


def shown(stack: Stack) -> str:
    """Everything that was logged."""
    return str(stack.lines()) + str(stack.lines("policy_in_force")) + str(stack.lines("policy_refused"))


async def test_each_deployment_gets_its_own_key_and_never_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_KEY", SECRET)
    sent = {"authorization": f"Bearer {CLIENT_KEY}", "cookie": "session=1", "x-api-key": CLIENT_KEY}
    async with running(tmp_path, policy=with_key(tmp_path)) as stack:
        for model, upstream, expected in (
            ("tiny", stack.small, f"Bearer {SECRET}"),
            ("big", stack.large, None),
        ):
            reply = await stack.call(chat(model), headers=sent)
            assert reply.status == 200
            got = upstream.received[-1].headers
            assert got.get("authorization") == expected
            assert CLIENT_KEY not in str(got)
            assert "cookie" not in got
            assert SECRET not in str(reply.headers) + reply.body.decode()
        assert SECRET not in shown(stack)
        assert all("authorization" not in probe.headers for probe in stack.small.probes)
        for path in ("/metrics", "/openapi.json", "/readyz"):
            assert SECRET not in (await stack.get(path, admin=True)).body.decode()


async def test_an_upstream_that_refuses_the_key_is_a_502_that_repeats_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "bad key %b"}}' % SECRET.encode(), 401)

    monkeypatch.setenv("HOSTED_KEY", SECRET)
    async with running(tmp_path, policy=with_key(tmp_path)) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.call(chat("tiny"))
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert "refused the gateway's credentials" in reply.error["message"]
        assert SECRET not in reply.body.decode() + shown(stack)


@pytest.mark.parametrize("status", [200, 400, 413, 422])
@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "cannot read authorization: Bearer %b", "type": "t", "param": null, "code": 400}}',
        b'{"error": {"message": "no such model", "code": 400, "request": {"authorization": "Bearer %b"}}}',
        b'{"detail": [{"loc": ["header"], "msg": "Bearer %b is odd"}], "error": {"code": 400, "message": "%b"}}',
        b'{"error": {"code": 400, "message": "x", "type": "t", "param": null, "headers": ["%b"]}}',
    ],
)
async def test_a_refusal_that_repeats_the_gateways_request_shows_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, status: int
) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(body.replace(b"%b", SECRET.encode()), status)

    monkeypatch.setenv("HOSTED_KEY", SECRET)
    async with running(tmp_path, policy=with_key(tmp_path)) as stack:
        stack.small.scripts = [refuse]
        reply = await stack.call(chat("tiny"))
        assert reply.status == (status if status != 200 else 400)
        assert reply.error["message"]
        assert SECRET not in reply.body.decode() + str(reply.headers) + shown(stack)


@pytest.mark.parametrize("dummy", ["x", "EMPTY", "message", "invalid"])
async def test_a_refusal_stays_whole_where_the_key_is_a_mere_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dummy: str
) -> None:
    body = b'{"error": {"message": "EMPTY is invalid", "type": "t", "param": null, "code": null}}'

    async def refuse(wire: Wire) -> None:
        await wire.answer(body, 400)

    monkeypatch.setenv("HOSTED_KEY", dummy)
    async with running(tmp_path, policy=with_key(tmp_path)) as stack:
        stack.small.scripts = [refuse]
        assert (await stack.call(chat("tiny"))).body == body


async def test_without_its_key_the_gateway_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTED_KEY", raising=False)
    with pytest.raises(PolicyFileError, match=r"deployments\.small\.auth\.bearer_env: .* HOSTED_KEY is not set"):
        async with running(tmp_path, policy=with_key(tmp_path)):
            pass


async def test_a_reload_whose_key_is_missing_leaves_the_last_good_policy_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_KEY", SECRET)
    monkeypatch.delenv("OTHER_KEY", raising=False)
    async with running(tmp_path, policy=with_key(tmp_path)) as stack:
        before = stack.gateway._current()
        (tmp_path / "policy.yaml").write_text(with_key(tmp_path, "OTHER_KEY"))
        while not stack.lines("policy_refused"):
            await asyncio.sleep(0.01)
        assert "OTHER_KEY is not set" in stack.lines("policy_refused")[0]["error"]
        assert stack.gateway._current() is before
        assert (await stack.call(chat("tiny"))).status == 200
        assert stack.small.received[-1].headers["authorization"] == f"Bearer {SECRET}"


async def test_an_https_upstream_with_a_base_path_is_verified_by_the_ca_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    monkeypatch.setenv("HOSTED_KEY", SECRET)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("good"))
    async with ScriptedUpstream(tmp_path / "unused.sock", tls=context) as hosted:
        url = f"https://localhost:{hosted.port}/openai/v1"
        extra = f"auth: {{bearer_env: HOSTED_KEY}}, tls: {{ca_file: '{authority.ca_file}'}}, "
        text = policy_text(tmp_path).replace(f"unix:{tmp_path}/small.sock", url)
        async with running(tmp_path, policy=text.replace("model: tiny,", f"model: tiny, {extra}")) as stack:
            for stream in (False, True):
                reply = await stack.call(chat("tiny", stream=stream))
                assert reply.status == 200, reply.body
                assert b"hel" in reply.body
            requested = hosted.received[-1]
            assert requested.line == "POST /openai/v1/chat/completions HTTP/1.1"
            assert requested.headers["authorization"] == f"Bearer {SECRET}"
            assert requested.headers["host"] == f"localhost:{hosted.port}"
            assert requested.json["model"] == "tiny"


async def test_an_https_upstream_of_an_unknown_authority_is_not_spoken_to(tmp_path: Path, authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("good"))
    async with ScriptedUpstream(tmp_path / "unused.sock", tls=context) as hosted:
        url = f"https://localhost:{hosted.port}/v1"
        text = policy_text(tmp_path).replace(f"unix:{tmp_path}/small.sock", url)
        async with running(tmp_path, policy=text) as stack:
            reply = await stack.call(chat("tiny"))
            assert reply.status in (502, 503)
            assert hosted.received == []
