"""Errors inside a 200 answer, in the shapes that servers give them, and what is no error."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.completion.stated_errors import (
    is_failed_reason,
    stated_aside,
    stated_error,
    stated_in_choice,
)

CHOICES = [{"index": 0, "delta": {"content": "hi"}}]


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"error": {"message": "busy", "code": 429}}, 429),
        ({"error": {"message": "busy", "code": "429"}}, 429),
        ({"error": {"type": "overloaded_error"}}, 503),
        ({"error": {"type": "rate-limit"}}, 429),
        ({"error": {"__type": "com.example#ThrottlingException"}}, 429),
        ({"error": "something broke"}, None),
        ({"object": "error", "message": "too long", "code": 400}, 400),
        ({"type": "error", "error": {"type": "not_found_error"}}, 404),
        ({"detail": "Not authenticated", "status": 401}, 401),
        ({"base_resp": {"status_code": 1002, "status_msg": "limit"}}, None),
        ({"x_groq": {"error": "over capacity"}, "choices": []}, None),
        ([{"error": {"code": 500, "message": "x"}}], 500),
    ],
)
def test_an_error_is_found_in_every_shape_with_its_status(document: Any, status: int | None) -> None:
    found = stated_error(document)
    assert found is not None
    assert found.status == status
    assert "error" in msgspec.json.decode(found.body)


@pytest.mark.parametrize(
    "document",
    [
        {"choices": CHOICES},
        {"choices": CHOICES, "error": None},
        {"choices": [], "usage": {"total_tokens": 3}},
        {"usage": {"total_tokens": 3}, "message": "done"},
        {"type": "ping", "message": "hello"},
        {"id": "c", "detail": ""},
        {"base_resp": {"status_code": 0}, "choices": CHOICES},
        [],
        "text",
        None,
    ],
)
def test_what_is_no_error_is_left_alone(document: Any) -> None:
    assert stated_error(document) is None


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    assert stated_error("oops", event="error") is not None
    assert stated_error({"anything": 1}, event="error") is not None
    assert stated_error({"message": "x"}, event="progress") is None


def test_only_openais_own_form_needs_no_translation() -> None:
    assert stated_error({"error": {"message": "x"}}).is_standard  # type: ignore[union-attr]
    assert not stated_error({"detail": "x"}).is_standard  # type: ignore[union-attr]
    assert not stated_aside({"error": {"message": "x"}}).is_standard  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "reason", ["abort", "ABORTED", "network_error", {"type": "error"}, "insufficient_system_resource"]
)
def test_a_broken_off_answer_is_known_by_its_reason(reason: Any) -> None:
    assert is_failed_reason(reason)
    assert stated_in_choice({"finish_reason": reason}) is not None


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls", None, 3])
def test_an_answer_that_ended_by_itself_is_no_failure(reason: Any) -> None:
    assert not is_failed_reason(reason)
    assert stated_in_choice({"finish_reason": reason, "error": {}}) is None


def test_an_integer_beyond_64_bits_is_no_status_and_hurts_nothing() -> None:
    found = stated_error({"error": {"message": "x", "code": 10**30}})
    assert found is not None
    assert found.status is None
    assert json.loads(found.body)["error"]["message"] == "x"
