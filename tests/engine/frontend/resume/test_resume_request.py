"""Orders of the gateway to resume a stream: only what its key signs has an effect."""

from __future__ import annotations

import hashlib
import hmac
import json
from array import array
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import ApiError
from engine.frontend.resume.resume_request import HEADER, RESUMED_TOKENS, ResumeRequest, read_resume

KEY = b"0123456789abcdef0123456789abcdef"
TOKENS = [5, 151_643, 0]


def headers(order: dict[str, Any], key: bytes = KEY) -> Headers:
    payload = urlsafe_b64encode(json.dumps(order).encode())
    signature = hmac.new(key, payload, hashlib.sha256).hexdigest().encode()
    return Headers({"headers": [(HEADER.encode(), payload + b"." + signature)]})


def order_for(token_ids: list[int]) -> dict[str, Any]:
    digest = hashlib.sha256(array("q", token_ids).tobytes()).hexdigest()
    return {"seed": 3, "tokens_digest": digest, "id": "chatcmpl-1", "created": 7, "digest": "exact;ab"}


def body(token_ids: object) -> bytes:
    return json.dumps({"model": "m", RESUMED_TOKENS: token_ids}).encode()


def test_a_stream_that_begins_has_a_seed_and_no_tokens() -> None:
    found = read_resume(headers({"seed": 3, "can_move": True}), b'{"model":"m"}', KEY)
    assert found == ResumeRequest(seed=3, can_move=True)


def test_a_stream_that_goes_on_has_the_tokens_of_the_body_and_the_identity_of_the_order() -> None:
    found = read_resume(headers(order_for(TOKENS)), body(TOKENS), KEY)
    assert found == ResumeRequest(seed=3, token_ids=tuple(TOKENS), id="chatcmpl-1", created=7, digest="exact;ab")


@pytest.mark.parametrize("key", [None, b"f" * 32])
def test_an_order_has_no_effect_without_the_key_that_signed_it(key: bytes | None) -> None:
    assert read_resume(headers(order_for(TOKENS)), body(TOKENS), key) is None


@pytest.mark.parametrize("value", [b"", b".", b"e30=", b"e30=.", b"\xff.\xff"])
def test_a_header_without_a_signature_has_no_effect(value: bytes) -> None:
    assert read_resume(Headers({"headers": [(HEADER.encode(), value)]}), body(TOKENS), KEY) is None


def test_a_request_without_the_header_is_none_of_these() -> None:
    assert read_resume(Headers({"headers": []}), body(TOKENS), KEY) is None


@pytest.mark.parametrize("token_ids", [[5, 151_643, 1], [], "5", [2**63], None])
def test_other_tokens_than_the_signed_ones_are_refused(token_ids: object) -> None:
    with pytest.raises(ApiError) as caught:
        read_resume(headers(order_for(TOKENS)), body(token_ids), KEY)
    assert (caught.value.status, caught.value.param) == (400, RESUMED_TOKENS)
