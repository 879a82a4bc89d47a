"""Other prompts for a recorded request, and what makes two requests alike for a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest
from gateway.replay.prompt import are_alike, with_prompt

USER = {"role": "user", "content": "hi"}


def requested(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages or [USER], **fields}).encode())


def test_a_text_replaces_the_instructions_or_comes_before_all() -> None:
    system = {"role": "system", "content": "new"}
    assert with_prompt(requested(), "new").document["messages"] == [system, USER]
    older = requested({"role": "developer", "content": "old"}, USER)
    assert with_prompt(older, "new").document["messages"] == [{"role": "developer", "content": "new"}, USER]


def test_the_messages_of_a_body_replace_all_and_the_rest_stays() -> None:
    found = with_prompt(requested(seed=7), json.dumps({"model": "x", "messages": [{"role": "user", "content": "yo"}]}))
    assert found.document == {"model": "auto", "messages": [{"role": "user", "content": "yo"}], "seed": 7}


@pytest.mark.parametrize("prompt", ['{"messages": "no"}', '{"messages": [{"role": "nobody", "content": 1}]}'])
def test_messages_that_are_none_are_refused(prompt: str) -> None:
    with pytest.raises(InvalidRequest):
        with_prompt(requested(), prompt)


def test_the_form_of_an_answer_makes_no_difference_and_its_seed_does() -> None:
    assert are_alike(requested(), requested(stream=True, stream_options={"include_usage": True}))
    assert not are_alike(requested(), requested(seed=1))
    assert not are_alike(requested(), requested({"role": "user", "content": "ho"}))
