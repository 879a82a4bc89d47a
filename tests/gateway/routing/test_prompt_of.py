"""What a quality prediction sees of a request."""

from __future__ import annotations

import json

from gateway.chat.request import ChatRequestParser
from gateway.routing.prompt_of import prompt_of
from routing_policies.quality.prompt import Prompt
from tests.gateway.test_quality_routing import requested


def test_a_conversation_becomes_its_last_two_questions_and_the_size_of_the_rest() -> None:
    body = {
        "model": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "And books?"},
            {"role": "assistant", "content": "9 euros"},
            {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "pens?"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    found = prompt_of(ChatRequestParser().parse(json.dumps(body).encode()), "dev")
    assert found == Prompt("And\npens?", "And books?", 2, 35, True, True, sender="dev")
    lone = prompt_of(ChatRequestParser().parse(json.dumps(requested("hi")).encode()), "dev")
    assert lone == Prompt("hi", "", 1, 2, sender="dev")
    system = {"model": "auto", "messages": [{"role": "system", "content": "x"}]}
    assert prompt_of(ChatRequestParser().parse(json.dumps(system).encode()), "dev").text == ""


def test_a_route_reports_the_kind_of_work_of_its_prompts() -> None:
    request = ChatRequestParser().parse(json.dumps(requested("hi")).encode())
    assert (prompt_of(request, "dev").kind, prompt_of(request, "dev", kind="sums").kind) == ("", "sums")
