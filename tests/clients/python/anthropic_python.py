"""anthropic: messages, streams, tools and token counts."""

from __future__ import annotations

import anthropic
from cells import AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, URL, cell, refused, run

CLIENT = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
TOOL = {
    "name": "weather",
    "description": "The weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
USER = [{"role": "user", "content": PROMPT}]


@cell("messages")
def plain() -> None:
    """A plain message."""
    answer = CLIENT.messages.create(model=MODEL, max_tokens=16, messages=USER, system="Be brief.")
    assert answer.content[0].type == "text"
    assert answer.usage.output_tokens > 0
    assert answer.stop_reason in ("end_turn", "max_tokens", "stop_sequence")


@cell("messages")
def stream() -> None:
    """A stream, put together by the SDK."""
    with CLIENT.messages.stream(model=MODEL, max_tokens=16, messages=USER) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert text == final.content[0].text
    assert final.usage.output_tokens > 0


@cell("messages")
def tools() -> None:
    """A tool call, its result and the answer."""
    messages = [{"role": "user", "content": TOOL_PROMPT}]
    first = CLIENT.messages.create(model=AGENT, max_tokens=64, messages=messages, tools=[TOOL])
    assert first.stop_reason == "tool_use"
    call = next(block for block in first.content if block.type == "tool_use")
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}]},
    ]
    second = CLIENT.messages.create(model=AGENT, max_tokens=64, messages=messages, tools=[TOOL])
    assert second.content[0].type == "text"


@cell("messages")
def tool_stream() -> None:
    """A tool call in a stream."""
    with CLIENT.messages.stream(
        model=AGENT, max_tokens=64, messages=[{"role": "user", "content": TOOL_PROMPT}], tools=[TOOL]
    ) as events:
        final = events.get_final_message()
    assert any(block.type == "tool_use" and block.input for block in final.content)


@cell("messages")
def cached_blocks() -> None:
    """System blocks with cache marks."""
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert CLIENT.messages.create(model=MODEL, max_tokens=8, system=system, messages=USER).content


@cell("count_tokens")
def count_tokens() -> None:
    """A count without a completion."""
    assert CLIENT.messages.count_tokens(model=MODEL, messages=USER).input_tokens > 0


@cell("messages")
def refusal() -> None:
    """A bad request is a BadRequestError in Anthropic's envelope."""
    error = refused(
        anthropic.BadRequestError,
        lambda: CLIENT.messages.create(model=MODEL, max_tokens=16, messages=USER, extra_body={"temperature": 7}),
    )
    assert error.body["type"] == "error", error.body
    assert "temperature" in error.body["error"]["message"]


run()
