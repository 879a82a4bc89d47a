"""The envelope and the headers of every error, as the contract's table has them."""

from __future__ import annotations

import json

import pytest

from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    ModelNotAllowed,
    NotFound,
    RequestTooLarge,
    Shed,
    ShedReason,
    UnsupportedMediaType,
    UpstreamFailed,
    UpstreamTimedOut,
    error_body,
    error_event,
    error_headers,
)

TABLE: list[tuple[GatewayError, int, str, str]] = [
    (InvalidRequest("m", code="invalid_json"), 400, "invalid_request_error", "invalid_json"),
    (InvalidRequest("m", param="n"), 400, "invalid_request_error", "invalid_value"),
    (InvalidApiKey(), 401, "invalid_request_error", "invalid_api_key"),
    (ModelNotAllowed("m"), 403, "invalid_request_error", "model_not_allowed"),
    (NotFound("m", code="model_not_found"), 404, "invalid_request_error", "model_not_found"),
    (NotFound("m"), 404, "invalid_request_error", "not_found"),
    (MethodNotAllowed("GET", ["POST"]), 405, "invalid_request_error", "method_not_allowed"),
    (RequestTooLarge("m"), 413, "invalid_request_error", "request_too_large"),
    (UnsupportedMediaType("m"), 415, "invalid_request_error", "unsupported_media_type"),
    (UpstreamFailed("m"), 502, "api_error", "upstream_error"),
    (UpstreamTimedOut("m"), 504, "api_error", "upstream_timeout"),
    (InternalError("req_1"), 500, "api_error", "internal_error"),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), TABLE)
def test_the_envelope_has_all_four_keys(error: GatewayError, status: int, kind: str, code: str) -> None:
    body = json.loads(error_body(error))

    assert error.status == status
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
    assert dict(error_headers(error))[b"x-penstock-error-code"] == code.encode()


def shed(reason: ShedReason, retry_after_s: float = 3.2) -> Shed:
    return Shed(reason, lane="batch", message="m", hint="h", retry_after_s=retry_after_s, queue_depth=4)


@pytest.mark.parametrize("reason", ShedReason)
def test_a_shed_states_when_to_come_back_and_whether(reason: ShedReason) -> None:
    headers = dict(error_headers(shed(reason)))

    assert headers[b"retry-after"] == b"4"
    assert headers[b"retry-after-ms"] == b"3200"
    assert headers[b"x-penstock-shed-reason"] == reason.encode()
    assert headers[b"x-should-retry"] == (b"false" if reason in ("deadline", "slo_unreachable") else b"true")


@pytest.mark.parametrize(("wanted", "given"), [(0.0, b"1"), (1e9, b"60"), (59.5, b"60")])
def test_the_time_to_come_back_is_between_a_second_and_a_minute(wanted: float, given: bytes) -> None:
    assert dict(error_headers(shed(ShedReason.OVERLOAD, wanted)))[b"retry-after"] == given


def test_a_shed_body_states_what_a_product_may_show() -> None:
    degraded = json.loads(error_body(shed(ShedReason.QUEUE_FULL)))["error"]["degraded"]

    assert degraded == {"reason": "queue_full", "lane": "batch", "queue_depth": 4, "predicted_wait_ms": 0, "hint": "h"}


def test_an_error_event_is_one_event() -> None:
    event = error_event(UpstreamFailed("line\nbreak"))

    assert event.startswith(b"data: {")
    assert event.count(b"\n") == 2
