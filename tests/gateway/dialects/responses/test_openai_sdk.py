"""OpenAI's library and pydantic-ai as clients of `/v1/responses`, over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.gateway.dialects.responses.scripts import USAGE, answering, call, delta, streaming
from tests.gateway.stack import Stack, policy_text, running

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Ulm"}'}}


class Place(BaseModel):
    """What a structured answer holds."""

    city: str


@asynccontextmanager
async def served(folder: Path, policy: str | None = None) -> AsyncIterator[tuple[Stack, openai.AsyncOpenAI]]:
    """A gateway and a client of it."""
    async with running(folder, policy=policy) as stack:
        transport = httpx.AsyncHTTPTransport(uds=stack.gateway.config.public.listen.removeprefix("unix:"))
        async with httpx.AsyncClient(transport=transport) as http:
            yield (
                stack,
                openai.AsyncOpenAI(
                    api_key="none", base_url="http://gateway/v1", http_client=cast(Any, http), max_retries=0
                ),
            )


async def test_create(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        response = await client.responses.create(model="auto", input="hi", instructions="Be short.")
    assert response.output_text == "hello"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.total_tokens == 10


async def test_stream_helper(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client), client.responses.stream(model="auto", input="hi") as stream:
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert texts == ["hel", "lo"]
    assert final.output_text == "hello"


async def test_stream_helper_with_reasoning_and_calls(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, client):
        stack.small.scripts = [
            streaming(
                delta(reasoning_content="hm"),
                delta(content="Looking."),
                delta(tool_calls=[call(0, id="call_1", name="weather", arguments='{"city":')]),
                delta(tool_calls=[call(0, arguments='"Ulm"}')]),
                delta("tool_calls"),
                delta(usage=USAGE),
            )
        ]
        async with client.responses.stream(model="auto", input="hi", tools=[WEATHER]) as stream:
            final = await stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].parsed_arguments == {"city": "Ulm"}  # type: ignore[union-attr]


async def test_parse_into_a_model(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, client):
        stack.small.scripts = [answering({"content": '{"city":"Ulm"}'})]
        response = await client.responses.parse(model="auto", input="hi", text_format=Place)
        form = stack.small.received[0].json["response_format"]
    assert response.output_parsed == Place(city="Ulm")
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "Place", True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_loop_of_three_turns_with_a_tool(tmp_path: Path, stream: bool) -> None:
    """Send each response's output back as the next input, as the library's documentation does."""
    calls = [
        answering({"content": None, "tool_calls": [CALL]}, "tool_calls"),
        answering({"content": "Sunny.", "reasoning_content": "hm"}),
        answering({"content": "Bye."}),
    ]
    streams = [
        streaming(delta(tool_calls=[{"index": 0, **CALL}]), delta("tool_calls")),
        streaming(delta(reasoning_content="hm"), delta(content="Sunny."), delta("stop")),
        streaming(delta(content="Bye."), delta("stop")),
    ]
    history: list[Any] = [{"role": "user", "content": "Weather in Ulm?"}]
    async with served(tmp_path) as (stack, client):
        stack.small.scripts = list(streams if stream else calls)
        for turn in range(3):
            if stream:
                async with client.responses.stream(model="auto", input=history, tools=[WEATHER]) as events:
                    response: Any = await events.get_final_response()
            else:
                response = await client.responses.create(model="auto", input=history, tools=[WEATHER])
            history += [item.model_dump() for item in response.output]
            if turn == 0:
                history.append({"type": "function_call_output", "call_id": "call_1", "output": "sunny"})
            else:
                history.append({"role": "user", "content": "Thanks"})
        sent = stack.small.received[2].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"] == [CALL]
    assert sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    assert (sent[3]["content"], sent[3]["reasoning_content"]) == ("Sunny.", "hm")


async def test_stored_responses(tmp_path: Path) -> None:
    policy = policy_text(tmp_path) + "responses: {store: true}\n"
    async with served(tmp_path, policy) as (_, client):
        first = await client.responses.create(model="auto", input="hi")
        second = await client.responses.create(model="auto", input="again", previous_response_id=first.id)
        read = await client.responses.retrieve(second.id)
        items = [item async for item in client.responses.input_items.list(second.id, order="asc", limit=1)]
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)
    assert read.output_text == "hello"
    assert [getattr(item, "role", None) for item in items] == ["user", "assistant", "user"]


async def test_a_refusal_is_the_librarys_error(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="auto", input="hi", temperature=9)
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_value")


async def test_images_files_and_tools_of_other_kinds_pass_on(tmp_path: Path) -> None:
    content: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ]
    tools: Any = [
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "web_search"},
    ]
    async with served(tmp_path) as (stack, client):
        choice: Any = {"type": "custom", "name": "patch"}
        await client.responses.create(
            model="auto", input=[{"role": "user", "content": content}], tools=tools, tool_choice=choice
        )
        sent = stack.small.received[0].json
    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
    ]
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}
    assert sent["tools"] == [{"type": "custom", "custom": {"name": "patch", "format": grammar}}, {"type": "web_search"}]
    assert sent["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}}


async def test_pydantic_ai_runs_an_agent_with_a_tool(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with served(tmp_path) as (stack, client):
        stack.small.scripts = [answering({"content": None, "tool_calls": [CALL]}, "tool_calls", usage=USAGE)]
        agent = Agent(OpenAIResponsesModel("auto", provider=OpenAIProvider(openai_client=client)))

        @agent.tool_plain
        def weather(city: str) -> str:
            """Tell the weather."""
            return f"sunny in {city}"

        result = await agent.run("Weather in Ulm?")
        sent = stack.small.received[1].json["messages"]
    assert result.output == "hello"
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Ulm"}
    assert sent[2]["content"] == "sunny in Ulm"
