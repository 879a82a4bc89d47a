"""Orders of the gateway to resume a stream: only what its key signs has an effect."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import ApiError
from engine.frontend.resume.resume_request import BEGUN_CHOICES, HEADER, BegunChoice, ResumeRequest, read_resume

KEY = b"0123456789abcdef0123456789abcdef"
BEGUN = {"0": {"token_ids": [5, 151_643, 0], "finish": None}, "2": {"token_ids": [7], "finish": "stop"}}


def headers(order: dict[str, Any], key: bytes = KEY) -> Headers:
    payload = urlsafe_b64encode(json.dumps(order).encode())
    signature = hmac.new(key, payload, hashlib.sha256).hexdigest().encode()
    return Headers({"headers": [(HEADER.encode(), payload + b"." + signature)]})


def order_for(choices: object) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(choices).encode()).hexdigest()
    return {"seed": 3, "choices_digest": digest, "id": "chatcmpl-1", "created": 7, "digest": "exact;ab"}


def body(choices: object) -> bytes:
    return json.dumps({"model": "m", BEGUN_CHOICES: choices}).encode()


def test_a_stream_that_begins_has_a_seed_and_no_tokens() -> None:
    found = read_resume(headers({"seed": 3, "can_move": True}), b'{"model":"m"}', KEY)
    assert found == ResumeRequest(seed=3, can_move=True)


def test_a_stream_that_goes_on_has_the_tokens_of_the_body_and_the_identity_of_the_order() -> None:
    found = read_resume(headers(order_for(BEGUN)), body(BEGUN), KEY)
    choices = {0: BegunChoice((5, 151_643, 0)), 2: BegunChoice((7,), "stop")}
    assert found == ResumeRequest(seed=3, choices=choices, id="chatcmpl-1", created=7, digest="exact;ab")


@pytest.mark.parametrize("key", [None, b"f" * 32])
def test_an_order_has_no_effect_without_the_key_that_signed_it(key: bytes | None) -> None:
    assert read_resume(headers(order_for(BEGUN)), body(BEGUN), key) is None


@pytest.mark.parametrize("value", [b"", b".", b"e30=", b"e30=.", b"\xff.\xff"])
def test_a_header_without_a_signature_has_no_effect(value: bytes) -> None:
    assert read_resume(Headers({"headers": [(HEADER.encode(), value)]}), body(BEGUN), KEY) is None


def test_an_order_whose_tokens_are_elsewhere_begins_no_second_answer() -> None:
    order = {"seed": 3, "tokens_digest": "00", "id": "chatcmpl-1", "created": 7, "digest": "exact;ab"}
    with pytest.raises(ApiError) as refused:
        read_resume(headers(order), body(BEGUN), KEY)
    assert refused.value.status == 409


def test_a_request_without_the_header_is_none_of_these() -> None:
    assert read_resume(Headers({"headers": []}), body(BEGUN), KEY) is None


@pytest.mark.parametrize("choices", [{}, {"0": BEGUN["0"]}, [5], "5", {"0": {"token_ids": [2**63]}}, None])
def test_other_choices_than_the_signed_ones_are_refused(choices: object) -> None:
    with pytest.raises(ApiError) as caught:
        read_resume(headers(order_for(BEGUN)), body(choices), KEY)
    assert (caught.value.status, caught.value.param) == (400, BEGUN_CHOICES)


def test_a_body_without_the_signed_choices_is_refused() -> None:
    with pytest.raises(ApiError):
        read_resume(headers(order_for(BEGUN)), b'{"model":"m"}', KEY)
