"""openai-agents: agents over responses, which is its default, and over chat completions."""

from __future__ import annotations

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from cells import AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"18 degrees in {city}"


def responses_model(name: str) -> OpenAIResponsesModel:
    """Return a model over responses."""
    return OpenAIResponsesModel(model=name, openai_client=AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))


def chat_model(name: str) -> OpenAIChatCompletionsModel:
    """Return a model over chat completions."""
    return OpenAIChatCompletionsModel(model=name, openai_client=AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))


@cell("responses")
async def plain() -> None:
    """A plain run."""
    assert (await Runner.run(Agent(name="a", model=responses_model(MODEL)), PROMPT)).final_output


@cell("responses")
async def tools() -> None:
    """A tool loop."""
    agent = Agent(name="a", model=responses_model(AGENT), tools=[weather])
    assert "18 degrees" in (await Runner.run(agent, TOOL_PROMPT)).final_output


@cell("responses")
async def stream() -> None:
    """A streamed tool loop."""
    agent = Agent(name="a", model=responses_model(AGENT), tools=[weather])
    result = Runner.run_streamed(agent, TOOL_PROMPT)
    async for _ in result.stream_events():
        pass
    assert "18 degrees" in result.final_output


@cell("chat")
async def chat_tools() -> None:
    """A tool loop over chat completions."""
    agent = Agent(name="a", model=chat_model(AGENT), tools=[weather])
    assert "18 degrees" in (await Runner.run(agent, TOOL_PROMPT)).final_output


@cell("chat")
async def chat_stream() -> None:
    """A streamed run over chat completions."""
    result = Runner.run_streamed(Agent(name="a", model=chat_model(MODEL)), PROMPT)
    async for _ in result.stream_events():
        pass
    assert result.final_output


run()
