"""semantic-kernel: chat completion, stream and a function."""

from __future__ import annotations

from cells import AGENT, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


class Weather:
    """A plugin."""

    @kernel_function(description="Look up the weather.")
    def weather(self, city: str) -> str:
        """Return the weather of a city."""
        return f"18 degrees in {city}"


def service(name: str) -> OpenAIChatCompletion:
    """Return a service of the gateway."""
    return OpenAIChatCompletion(ai_model_id=name, async_client=AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0))


def history(text: str) -> ChatHistory:
    """Return a conversation of one message."""
    found = ChatHistory()
    found.add_user_message(text)
    return found


@cell("chat")
async def plain() -> None:
    """A plain answer."""
    settings = OpenAIChatPromptExecutionSettings(max_tokens=16)
    assert await service(MODEL).get_chat_message_contents(history(PROMPT), settings)


@cell("chat")
async def stream() -> None:
    """A stream."""
    settings = OpenAIChatPromptExecutionSettings(max_tokens=16)
    pieces = service(MODEL).get_streaming_chat_message_contents(history(PROMPT), settings)
    assert [piece async for piece in pieces]


@cell("chat")
async def tools() -> None:
    """A function, called by the kernel itself."""
    kernel = Kernel()
    kernel.add_plugin(Weather(), "tools")
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
    answer = await service(AGENT).get_chat_message_contents(history(TOOL_PROMPT), settings, kernel=kernel)
    assert "18 degrees" in str(answer[0])


run()
