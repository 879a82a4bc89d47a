"""Errors in the API's one envelope."""

from __future__ import annotations

import json

import pytest

from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import (
    ApiError,
    context_length_exceeded,
    core_failed,
    internal_error,
    invalid_json,
    invalid_value,
    overloaded_error,
    unsupported,
)


@pytest.mark.parametrize(
    ("error", "status", "type", "code", "param"),
    [
        (invalid_json("m"), 400, "invalid_request_error", "invalid_json", None),
        (invalid_value("n", "m"), 400, "invalid_request_error", "invalid_value", "n"),
        (unsupported(FieldRefusal("n", "m")), 400, "invalid_request_error", "unsupported_parameter", "n"),
        (core_failed("m"), 502, "api_error", "upstream_error", None),
        (internal_error("id"), 500, "api_error", "internal_error", None),
        (overloaded_error("m", reason="overload"), 503, "service_unavailable_error", "server_is_overloaded", None),
    ],
)
def test_each_failure_has_its_status_and_the_four_keys(
    error: ApiError, status: int, type: str, code: str, param: str | None
) -> None:
    found = json.loads(error.body())["error"]
    assert error.status == status
    assert (found["type"], found["code"], found["param"], found["message"]) == (type, code, param, error.message)


def test_a_failure_behind_the_first_byte_is_one_event() -> None:
    event = invalid_value("n", "two\nlines").event()
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2


@pytest.mark.parametrize(("max_tokens", "numbers"), [(None, ["64", "90"]), (30, ["64", "120", "90", "30"])])
def test_a_prompt_that_is_too_long_is_reported_every_number(max_tokens: int | None, numbers: list[str]) -> None:
    message = context_length_exceeded(90, 64, max_tokens, "messages").message
    assert all(number in message for number in numbers)
    assert "at least" not in message
    assert "at least 90" in context_length_exceeded(90, 64, None, "messages", is_at_least=True).message


def test_a_shed_request_is_reported_when_to_come_back_or_not_to() -> None:
    later = overloaded_error(
        "m", reason="queue_full", retry_after_s=9, lane="batch", queue_depth=3, predicted_wait_s=1.5
    )
    assert later.headers == {"x-penstock-shed-reason": "queue_full", "retry-after": "9"}
    degraded = json.loads(later.body())["error"]["degraded"]
    assert (degraded["lane"], degraded["queue_depth"], degraded["predicted_wait_ms"]) == ("batch", 3, 1500)
    never = overloaded_error("m", reason="deadline", retry_after_s=None)
    assert never.headers == {"x-penstock-shed-reason": "deadline", "x-should-retry": "false"}
