"""pydantic-ai: agents over chat completions, responses and messages."""

from __future__ import annotations

from cells import AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, URL, V1, cell, run
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

OPENAI = OpenAIProvider(base_url=V1, api_key=KEY)


class Sum(BaseModel):
    """A sum."""

    value: int


def with_weather(model: object) -> Agent:
    """Return an agent with one tool."""
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        """Look up the weather."""
        return f"18 degrees in {city}"

    return agent


@cell("chat")
def plain() -> None:
    """A plain answer."""
    assert Agent(OpenAIChatModel(MODEL, provider=OPENAI)).run_sync(PROMPT).output


@cell("chat")
async def stream() -> None:
    """A stream."""
    async with Agent(OpenAIChatModel(MODEL, provider=OPENAI)).run_stream(PROMPT) as result:
        assert "".join([piece async for piece in result.stream_text(delta=True)])


@cell("chat")
def tools() -> None:
    """A tool loop."""
    assert "18 degrees" in with_weather(OpenAIChatModel(AGENT, provider=OPENAI)).run_sync(TOOL_PROMPT).output


@cell("chat")
def structured() -> None:
    """A structured answer, by a tool call."""
    agent = Agent(OpenAIChatModel(AGENT, provider=OPENAI), output_type=Sum)
    assert isinstance(agent.run_sync("Use the tool: " + PROMPT).output, Sum)


@cell("responses")
def responses() -> None:
    """A tool loop over responses."""
    assert "18 degrees" in with_weather(OpenAIResponsesModel(AGENT, provider=OPENAI)).run_sync(TOOL_PROMPT).output


@cell("messages")
def messages() -> None:
    """A tool loop over messages."""
    provider = AnthropicProvider(base_url=URL, api_key=KEY)
    assert "18 degrees" in with_weather(AnthropicModel(AGENT, provider=provider)).run_sync(TOOL_PROMPT).output


run()
