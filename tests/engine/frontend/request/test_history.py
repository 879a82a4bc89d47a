"""Histories in older spellings, and answers that come back as they went out."""

from __future__ import annotations

from engine.frontend.request.history import modern_history


def test_newer_messages_stay_as_they_are() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "tool", "content": "b", "tool_call_id": "c"}, None]
    assert modern_history(messages) == messages


def test_a_function_call_and_its_output_belong_together() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    called, output = modern_history([call, {"role": "function", "name": "f", "content": None}])
    assert called["tool_calls"] == [{"id": "call_f", "type": "function", "function": call["function_call"]}]
    assert (output["role"], output["tool_call_id"], output["content"]) == ("tool", "call_f", "")


def test_an_answer_of_reasoning_alone_has_no_text() -> None:
    (answer,) = modern_history([{"role": "assistant", "reasoning_content": "hm"}])
    assert answer["content"] == ""


def test_a_refusal_is_text() -> None:
    (answer,) = modern_history([{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])
    assert answer["content"] == [{"type": "text", "text": "no"}]
