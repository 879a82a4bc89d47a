"""langchain-openai: chat, tools, structured output, responses and embeddings."""

from __future__ import annotations

from cells import AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Sum(BaseModel):
    """A sum."""

    value: int


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"18 degrees in {city}"


def model(name: str, **more: object) -> ChatOpenAI:
    """Return a chat model of the gateway."""
    return ChatOpenAI(model=name, base_url=V1, api_key=KEY, max_retries=0, **more)


@cell("chat")
def plain() -> None:
    """A plain answer."""
    assert model(MODEL, max_tokens=16).invoke(PROMPT).content


@cell("chat")
def stream() -> None:
    """A stream."""
    assert "".join(chunk.text if isinstance(chunk.text, str) else "" for chunk in model(MODEL).stream(PROMPT))


@cell("chat")
def tools() -> None:
    """A tool loop."""
    bound = model(AGENT).bind_tools([weather])
    first = bound.invoke(TOOL_PROMPT)
    result = weather.invoke(first.tool_calls[0])
    assert bound.invoke([("user", TOOL_PROMPT), first, result]).content


@cell("chat")
def structured() -> None:
    """A structured answer."""
    assert isinstance(model(AGENT).with_structured_output(Sum).invoke(PROMPT), Sum)


@cell("responses")
def responses() -> None:
    """A response."""
    assert model(MODEL, use_responses_api=True).invoke(PROMPT).content


@cell("embeddings")
def embeddings() -> None:
    """A vector; token ids would need a file from a remote host."""
    encoder = OpenAIEmbeddings(model=ENCODER, base_url=V1, api_key=KEY, check_embedding_ctx_length=False)
    assert len(encoder.embed_query("a cat")) > 100


run()
