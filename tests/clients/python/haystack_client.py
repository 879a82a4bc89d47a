"""haystack: a chat generator with tools, and a text embedder."""

from __future__ import annotations

from cells import AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret


def weather(city: str) -> str:
    """Look up the weather."""
    return f"18 degrees in {city}"


def generator(name: str, **more: object) -> OpenAIChatGenerator:
    """Return a generator of the gateway."""
    return OpenAIChatGenerator(model=name, api_base_url=V1, api_key=Secret.from_token(KEY), max_retries=0, **more)


@cell("chat")
def plain() -> None:
    """A plain answer."""
    assert generator(MODEL).run([ChatMessage.from_user(PROMPT)])["replies"][0].text


@cell("chat")
def stream() -> None:
    """A stream."""
    pieces: list[object] = []
    generator(MODEL, streaming_callback=pieces.append).run([ChatMessage.from_user(PROMPT)])
    assert pieces


@cell("chat")
def tools() -> None:
    """A tool call."""
    answer = generator(AGENT, tools=[create_tool_from_function(weather)]).run([ChatMessage.from_user(TOOL_PROMPT)])
    assert answer["replies"][0].tool_calls


@cell("embeddings")
def embeddings() -> None:
    """A vector."""
    embedder = OpenAITextEmbedder(model=ENCODER, api_base_url=V1, api_key=Secret.from_token(KEY))
    assert len(embedder.run("a cat")["embedding"]) > 100


run()
