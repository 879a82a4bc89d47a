"""llama-index: an OpenAI-like model and embeddings."""

from __future__ import annotations

from cells import AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, run
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike


def model(name: str) -> OpenAILike:
    """Return a model of the gateway."""
    return OpenAILike(
        model=name, api_base=V1, api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_tokens=16
    )


def weather(city: str) -> str:
    """Look up the weather."""
    return f"18 degrees in {city}"


@cell("chat")
def plain() -> None:
    """A plain answer."""
    assert model(MODEL).chat([ChatMessage(role="user", content=PROMPT)]).message.content


@cell("chat")
def stream() -> None:
    """A stream."""
    chunks = list(model(MODEL).stream_chat([ChatMessage(role="user", content=PROMPT)]))
    assert chunks[-1].message.content


@cell("chat")
def tools() -> None:
    """A tool call."""
    answer = model(AGENT).chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=TOOL_PROMPT)
    assert model(AGENT).get_tool_calls_from_response(answer)


@cell("completions")
def completion() -> None:
    """A completion."""
    legacy = OpenAILike(model=MODEL, api_base=V1, api_key=KEY, is_chat_model=False, max_tokens=8)
    assert legacy.complete(PROMPT).text is not None


@cell("embeddings")
def embeddings() -> None:
    """A vector."""
    assert len(OpenAILikeEmbedding(model_name=ENCODER, api_base=V1, api_key=KEY).get_text_embedding("a cat")) > 100


run()
