"""Clients people already have work against a running Penstock with nothing changed but the base URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from tests.e2e.conftest import Stack
from tests.e2e.engine import engine_client

pytestmark = pytest.mark.e2e

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is 3 + 4?"}]


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.base_url, api_key="unused-in-dev-mode", max_retries=0) as client:
        yield client


def test_plain_answer_has_text_usage_and_the_model_that_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="auto", messages=QUESTION, temperature=0, max_tokens=16)
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream_gives_the_same_text_as_the_plain_answer(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="penstock-large", messages=QUESTION, temperature=0, max_tokens=16)
    stream = client.chat.completions.create(
        model="penstock-large",
        messages=QUESTION,
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    streamed, usage = chunks[-1].usage, plain.usage
    assert streamed is not None
    assert usage is not None
    assert (streamed.prompt_tokens, streamed.completion_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_async_client_streams(stack: Stack) -> None:
    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key="unused", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="penstock-small",
            messages=QUESTION,
            stream=True,
            max_tokens=8,
        )
        finishes = [chunk.choices[0].finish_reason async for chunk in stream if chunk.choices]
    assert [reason for reason in finishes if reason] in (["stop"], ["length"])


def test_raw_response_carries_the_request_id_and_who_answered(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="penstock-small", messages=QUESTION, max_tokens=4)
    assert raw.headers["x-request-id"] == raw.request_id
    assert raw.headers["x-penstock-deployment"] == "small"
    assert "upstream;dur=" in raw.headers["server-timing"]
    assert raw.parse().choices


def test_choices_logprobs_and_seed_work_through_the_gateway(client: openai.OpenAI) -> None:
    def call() -> list[str | None]:
        answer = client.chat.completions.create(
            model="penstock-small",
            messages=QUESTION,
            n=2,
            seed=11,
            temperature=1.0,
            logprobs=True,
            top_logprobs=2,
            max_tokens=6,
        )
        assert all(choice.logprobs and choice.logprobs.content for choice in answer.choices)
        return [choice.message.content for choice in answer.choices]

    assert call() == call()


def test_errors_arrive_as_the_sdks_own_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="auto", messages=QUESTION, temperature=9)
    assert bad.value.param == "temperature"
    assert bad.value.request_id


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    names = {model.id for model in client.models.list()}
    assert {"auto", "penstock-small", "penstock-large"} <= names
    assert client.models.retrieve("penstock-small").id == "penstock-small"


def test_sdk_leaving_a_stream_early_lets_the_next_request_in(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="penstock-large",
        messages=QUESTION,
        stream=True,
        max_tokens=500,
    ) as stream:
        next(iter(stream))
    assert client.chat.completions.create(model="penstock-large", messages=QUESTION, max_tokens=2).choices


def test_sdk_does_not_retry_what_cannot_succeed(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.url}/v1/nowhere", api_key="unused", max_retries=2)
    with client, pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="auto", messages=QUESTION)
    assert missing.value.code == "not_found"
    assert missing.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_langchain_chat_model_answers_and_streams(stack: Stack) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="penstock-large",
        base_url=stack.base_url,
        api_key=SecretStr("unused"),
        max_retries=0,
        temperature=0,
        max_tokens=12,  # type: ignore[call-arg]
    )
    try:
        answer = model.invoke("What is 3 + 4?")
        streamed = "".join(str(chunk.content) for chunk in model.stream("What is 3 + 4?"))
    finally:
        model.root_client.close()
    assert answer.content
    assert answer.usage_metadata is not None
    assert streamed == answer.content


async def test_pydantic_ai_agent_answers(stack: Stack) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with openai.AsyncOpenAI(base_url=stack.base_url, api_key="unused") as client:
        model = OpenAIChatModel("auto", provider=OpenAIProvider(openai_client=client))
        result = await Agent(model, model_settings={"max_tokens": 12, "temperature": 0.0}).run("What is 3 + 4?")
    assert result.output


def test_a_forced_function_is_called_with_arguments_of_its_schema(client: openai.OpenAI) -> None:
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 60}},
        "required": ["days"],
        "additionalProperties": False,
    }
    stream = client.chat.completions.create(
        model="penstock-small",
        messages=QUESTION,
        tools=[{"type": "function", "function": {"name": "extend", "parameters": parameters, "strict": True}}],
        tool_choice={"type": "function", "function": {"name": "extend"}},
        temperature=0,
        stream=True,
    )
    deltas = [chunk.choices[0] for chunk in stream if chunk.choices]
    pieces = [piece.function for delta in deltas for piece in delta.delta.tool_calls or [] if piece.function]
    assert pieces[0].name == "extend"
    assert 1 <= json.loads("".join(piece.arguments or "" for piece in pieces))["days"] <= 60
    assert deltas[-1].finish_reason == "tool_calls"


def test_an_answer_follows_the_schema_that_was_sent(client: openai.OpenAI) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answer = client.chat.completions.create(
        model="penstock-small",
        messages=QUESTION,
        response_format={"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}},
        temperature=0,
        max_tokens=200,
    )
    choice = answer.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or "")["ok"], bool)
    else:
        assert choice.finish_reason == "length"


def test_a_schema_that_cannot_be_followed_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="penstock-small",
            messages=QUESTION,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "http://a/b"}}},
        )
    assert (caught.value.code, caught.value.param) == ("invalid_value", "response_format")


WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]},
        },
    }
]


def plain_turn(client: openai.OpenAI, messages: list[Any], **fields: Any) -> dict[str, Any]:
    """One turn, its message as the SDK dumps it."""
    fields = {"model": "penstock-small", "messages": messages, "max_tokens": 64, "temperature": 0, **fields}
    answer = client.chat.completions.create(**fields)
    dumped: dict[str, Any] = answer.choices[0].message.model_dump()
    return dumped


def streamed_turn(client: openai.OpenAI, messages: list[Any], **fields: Any) -> dict[str, Any]:
    """One turn, its message as the SDK puts it together from a stream and dumps it."""
    fields = {"model": "penstock-small", "messages": messages, "max_tokens": 64, "temperature": 0, **fields}
    with client.chat.completions.stream(**fields) as stream:
        dumped: dict[str, Any] = stream.get_final_completion().choices[0].message.model_dump()
    return dumped


@pytest.mark.parametrize("turn", [plain_turn, streamed_turn])
@pytest.mark.parametrize("through", ["gateway", "engine"])
def test_answers_and_calls_can_be_sent_back_as_they_came(stack: Stack, through: str, turn: Any) -> None:
    http: Any = engine_client(stack) if through == "engine" else None
    base_url = stack.base_url if http is None else "http://engine/v1"
    with openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, http_client=http) as client:
        messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
        call = turn(client, messages, tools=WEATHER, tool_choice="required")
        messages.append(call)
        messages += [{"role": "tool", "tool_call_id": made["id"], "content": "sunny"} for made in call["tool_calls"]]
        messages.append(turn(client, messages, tools=WEATHER, tool_choice="none"))
        messages.append({"role": "user", "content": "What is 3 + 4?"})
        messages.append(turn(client, messages, stop=[], logit_bias={}))
        messages.append({"role": "user", "content": "And 4 + 5?"})
        assert turn(client, messages)["role"] == "assistant"
    assert len(messages) == 4 + len(call["tool_calls"]) + 2


def test_a_message_names_the_stop_sequence_that_ended_it(stack: Stack) -> None:
    with anthropic.Anthropic(base_url=stack.url, api_key="unused", max_retries=0) as client:
        request: dict[str, Any] = {"model": "large", "max_tokens": 16, "messages": QUESTION}
        whole = client.messages.create(**request).content[0]
        assert isinstance(whole, anthropic.types.TextBlock)
        stop = whole.text[-1]
        plain = client.messages.create(**request, stop_sequences=["@@", stop])
        with client.messages.stream(**request, stop_sequences=[stop]) as events:
            streamed = events.get_final_message()
        unmatched = client.messages.create(**request, stop_sequences=["@@"])
    assert [(one.stop_reason, one.stop_sequence) for one in (plain, streamed)] == [("stop_sequence", stop)] * 2
    assert unmatched.stop_sequence is None


def test_a_chat_client_that_stops_gets_no_unknown_member(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="large", messages=QUESTION, temperature=0, max_tokens=16)
    text = whole.choices[0].message.content or ""
    answer = client.chat.completions.create(
        model="large", messages=QUESTION, temperature=0, max_tokens=16, stop=[text[-1]]
    )
    assert answer.choices[0].message.content == text[: text.index(text[-1])]
    assert answer.choices[0].model_extra == {}


def test_a_completions_top_tokens_hold_the_sampled_one(client: openai.OpenAI) -> None:
    for wanted in (0, 1, 3):
        answer = client.completions.create(
            model="penstock-small", prompt="One two", max_tokens=8, temperature=2, seed=3, logprobs=wanted
        )
        found = answer.choices[0].logprobs
        assert found is not None
        assert found.tokens is not None
        assert found.top_logprobs is not None
        assert len(found.tokens) == len(found.top_logprobs) > 0
        for token, top in zip(found.tokens, found.top_logprobs, strict=True):
            assert token in top
            assert 1 <= len(top) <= wanted + 1


def test_a_schema_that_cannot_be_followed_is_named_in_the_words_of_each_api(
    stack: Stack, client: openai.OpenAI
) -> None:
    good, bad = {"type": "object"}, {"type": "object", "properties": {"a": {"not": {}}}}
    functions: list[Any] = [{"name": "good", "parameters": good}, {"name": "bad", "parameters": bad, "strict": True}]
    request: Any = {"model": "large", "max_tokens": 4, "messages": QUESTION}
    with pytest.raises(openai.BadRequestError) as of_chat:
        client.chat.completions.create(
            **request, tools=[{"type": "function", "function": one} for one in functions], tool_choice="required"
        )
    tools: Any = [{"type": "function", **one} for one in functions]
    with pytest.raises(openai.BadRequestError) as of_responses:
        client.responses.create(model="large", input="x", tools=tools, tool_choice="required")
    assert (of_chat.value.param, of_responses.value.param) == ("tools[1].function.parameters", "tools[1].parameters")
    named: Any = [{"name": one["name"], "input_schema": one["parameters"], "strict": True} for one in functions]
    with anthropic.Anthropic(base_url=stack.url, api_key="unused", max_retries=0) as messages:
        with pytest.raises(anthropic.BadRequestError) as of_messages:
            messages.messages.create(**request, tools=named, tool_choice={"type": "any"})
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        with pytest.raises(anthropic.BadRequestError) as of_image:
            messages.messages.create(**{**request, "messages": [{"role": "user", "content": [image]}]})
    assert "`tools[1].input_schema` has a schema that cannot be followed" in of_messages.value.message
    assert 'got "image"' in of_image.value.message
