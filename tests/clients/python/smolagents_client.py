"""smolagents: a model, a stream and a tool-calling agent."""

from __future__ import annotations

from cells import AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from smolagents import ChatMessage, OpenAIServerModel, ToolCallingAgent, tool


@tool
def weather(city: str) -> str:
    """Look up the weather.

    Args:
        city: The city.
    """
    return f"18 degrees in {city}"


def model(name: str) -> OpenAIServerModel:
    """Return a model of the gateway."""
    return OpenAIServerModel(model_id=name, api_base=V1, api_key=KEY)


@cell("chat")
def plain() -> None:
    """A plain answer."""
    assert model(MODEL)([ChatMessage(role="user", content=[{"type": "text", "text": PROMPT}])]).content


@cell("chat")
def stream() -> None:
    """A stream."""
    assert list(model(MODEL).generate_stream([ChatMessage(role="user", content=[{"type": "text", "text": PROMPT}])]))


@cell("chat")
def tools() -> None:
    """An agent with a tool."""
    assert ToolCallingAgent(tools=[weather], model=model(AGENT), max_steps=4, verbosity_level=0).run(TOOL_PROMPT)


run()
