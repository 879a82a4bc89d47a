"""litellm: its openai, responses, embeddings and anthropic ways to the gateway."""

from __future__ import annotations

import litellm
from cells import AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, URL, V1, cell, run

litellm.suppress_debug_info = True
USER = [{"role": "user", "content": PROMPT}]
OPENAI = {"api_base": V1, "api_key": KEY}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@cell("chat")
def plain() -> None:
    """A plain answer."""
    answer = litellm.completion(model=f"openai/{MODEL}", messages=USER, max_tokens=16, **OPENAI)
    assert answer.choices[0].message.content


@cell("chat")
def stream() -> None:
    """A stream."""
    chunks = litellm.completion(model=f"openai/{MODEL}", messages=USER, max_tokens=16, stream=True, **OPENAI)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@cell("chat")
def tools() -> None:
    """A tool call."""
    answer = litellm.completion(
        model=f"openai/{AGENT}", messages=[{"role": "user", "content": TOOL_PROMPT}], tools=[TOOL], **OPENAI
    )
    assert answer.choices[0].message.tool_calls


@cell("responses")
def responses() -> None:
    """A response."""
    answer = litellm.responses(model=f"openai/{MODEL}", input=PROMPT, max_output_tokens=16, **OPENAI)
    assert answer.output


@cell("embeddings")
def embeddings() -> None:
    """A vector."""
    assert litellm.embedding(model=f"openai/{ENCODER}", input=["a cat"], **OPENAI).data


@cell("messages")
def messages() -> None:
    """Anthropic's provider, at the gateway's Messages endpoint."""
    answer = litellm.completion(model=f"anthropic/{MODEL}", messages=USER, max_tokens=16, api_base=URL, api_key=KEY)
    assert answer.choices[0].message.content


run()
