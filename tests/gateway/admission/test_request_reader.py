"""Bad requests over the wire: each gets the envelope, its code and its place, and the next good one is served."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stack import Reply, chat, encode, policy_text, running

KEY = "sk-penstock-0123456789"


def good(**fields: Any) -> dict[str, Any]:
    return chat(**fields)


def assert_envelope(reply: Reply, status: int, code: str) -> None:
    assert reply.status == status
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert reply.error["code"] == code
    assert reply.headers["x-penstock-error-code"] == code
    assert reply.headers["x-request-id"].startswith("req_")
    assert reply.headers["content-type"] == "application/json"


BODIES: list[tuple[str, Any, str, str | None]] = [
    ("invalid UTF-8", b'{"model":"auto","messages":[{"role":"user","content":"\xff"}]}', "invalid_json", None),
    ("byte-order mark", b"\xef\xbb\xbf{}", "invalid_json", None),
    ("lone surrogate", b'{"model":"auto","messages":[{"role":"user","content":"\\ud800"}]}', "invalid_json", None),
    ("deep arrays", b"[" * 10_000, "invalid_json", None),
    ("deep objects", b'{"a":' * 10_000, "invalid_json", None),
    ("duplicate model", b'{"model":"a","model":"b","messages":[]}', "invalid_json", "model"),
    ("huge integer", b'{"model":"auto","seed":' + b"1" * 1_000_000 + b"}", "invalid_json", None),
    ("1e999", b'{"model":"auto","top_p":1e999}', "invalid_json", None),
    ("NaN", b'{"model":"auto","top_p":NaN}', "invalid_json", None),
    ("Infinity", b'{"model":"auto","top_p":-Infinity}', "invalid_json", None),
    ("truncated", b'{"model":"auto"', "invalid_json", None),
    ("trailing garbage", b"{} {}", "invalid_json", None),
    ("top-level array", b"[]", "invalid_json", None),
    ("empty", b"", "invalid_json", None),
    ("no messages", {"model": "auto"}, "invalid_value", "messages"),
    ("no model", {"messages": [{"role": "user", "content": "x"}]}, "invalid_value", "model"),
    ("stream yes", good(stream="yes"), "invalid_value", "stream"),
    ("api_base", good(api_base="http://x"), "unsupported_parameter", "api_base"),
    ("chat_template", good(chat_template="{{x}}"), "unsupported_parameter", "chat_template"),
]


@pytest.mark.parametrize(("body", "code", "param"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
async def test_a_bad_body_is_a_400_that_names_the_place(
    tmp_path: Path, body: Any, code: str, param: str | None
) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(body)

        assert_envelope(reply, 400, code)
        assert reply.error["param"] == param
        assert reply.error["type"] == "invalid_request_error"
        assert stack.small.received == []
        assert (await stack.call(chat())).status == 200


@pytest.mark.parametrize(
    "value", [None, "text/plain", "multipart/form-data; boundary=x", "application/json; charset=latin1"]
)
async def test_another_media_type_is_a_415(tmp_path: Path, value: str | None) -> None:
    async with running(tmp_path) as stack:
        raw = encode(chat(), headers={"content-type": value or "?"})
        if value is None:
            raw = raw.replace(b"content-type: ?\r\n", b"")
        reader, writer = await stack.connect()
        writer.write(raw)

        assert_envelope(Reply(await reader.read()), 415, "unsupported_media_type")
        writer.close()


async def test_json_with_a_charset_is_json(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for value in ("application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', "application/json"):
            assert (await stack.call(chat(), headers={"content-type": value})).status == 200


async def test_an_unknown_model_is_a_404_without_a_list(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat("gpt-\x1b[2J"))

        assert_envelope(reply, 404, "model_not_found")
        assert reply.error["param"] == "model"
        assert "tiny" not in reply.error["message"]
        assert "\x1b" not in reply.error["message"]


async def test_a_body_over_the_limit_is_a_413(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(b"", headers={"content-length": str(17 * 1024 * 1024)})
        assert_envelope(reply, 413, "request_too_large")


# Keys

KEYED = f"""
tenants:
  - {{id: support, keys: [{{id: k1, sha256: "{sha256(KEY.encode()).hexdigest()}"}}], models: [auto], lanes: [batch]}}
"""


def keyed(folder: Path) -> str:
    return policy_text(folder) + KEYED


BAD_KEYS = [
    *(None, "", "Bearer", "Bearer ", f"Basic {KEY}", f"bearer{KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:20]}"),
    *("Bearer ' OR 1=1", "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer " + "k" * 10_240),
]


@pytest.mark.parametrize("value", BAD_KEYS)
async def test_no_good_key_is_a_401(tmp_path: Path, value: str | None) -> None:
    async with running(tmp_path, policy=keyed(tmp_path)) as stack:
        headers = {} if value is None else {"authorization": value}
        reply = await stack.call(chat(), headers=headers)

        assert_envelope(reply, 401, "invalid_api_key")
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert (await stack.get("/v1/models", headers=headers)).status == 401
        assert KEY[:12] not in str(stack.lines())


async def test_a_good_key_is_its_tenant_and_only_its_lane_and_models(tmp_path: Path) -> None:
    async with running(tmp_path, policy=keyed(tmp_path)) as stack:
        headers = {"authorization": f"Bearer {KEY}", "x-penstock-priority": "interactive"}

        assert (await stack.call(chat(), headers=headers)).status == 200
        assert_envelope(await stack.call(chat("solo"), headers=headers), 403, "model_not_allowed")
        listed = (await stack.get("/v1/models", headers=headers)).json

        assert [model["id"] for model in listed["data"]] == ["auto"]
        assert (stack.lines()[0]["tenant"], stack.lines()[0]["lane"]) == ("support", "batch")
        assert (await stack.get("/v1/models/tiny", headers=headers)).status == 404
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_prompt_tokens_total{tenant="support"} 7.0' in metrics


async def test_two_authorization_headers_are_a_400(tmp_path: Path) -> None:
    async with running(tmp_path, policy=keyed(tmp_path)) as stack:
        raw = encode(chat(), headers={"authorization": f"Bearer {KEY}"})
        reader, writer = await stack.connect()
        writer.write(raw.replace(b"authorization:", b"authorization: Bearer x\r\nauthorization:", 1))

        assert Reply(await reader.read()).status == 400
        writer.close()


async def test_ten_thousand_levels_are_refused_within_ten_milliseconds(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat())
        for body in (b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000):
            begun = time.process_time()
            reply = await stack.call(body)
            assert reply.status == 400
            assert time.process_time() - begun < 0.01
