"""openai-python: every endpoint of the SDK that the gateway serves."""

from __future__ import annotations

import json

import openai
from cells import AGENT, ENCODER, KEY, MODEL, PROMPT, TOOL_PROMPT, V1, cell, refused, run
from pydantic import BaseModel

CLIENT = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 24}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": WEATHER}}
FLAT_TOOL = {"type": "function", "name": "weather", "description": "The weather", "parameters": WEATHER, "strict": True}
USER = [{"role": "user", "content": PROMPT}]


class Sum(BaseModel):
    """A structured answer."""

    value: int


@cell("chat")
def plain() -> None:
    """A plain answer."""
    answer = CLIENT.chat.completions.create(model=MODEL, messages=USER, max_completion_tokens=16)
    assert answer.choices[0].message.content
    assert answer.usage
    assert answer.usage.total_tokens > 0


@cell("chat")
def stream() -> None:
    """A stream with usage."""
    events = CLIENT.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=16, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(events)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage


def _tool_loop(model: str, *, choice: object) -> None:
    messages = [{"role": "user", "content": TOOL_PROMPT}]
    first = CLIENT.chat.completions.create(
        model=model, messages=messages, tools=[TOOL], tool_choice=choice, max_tokens=64
    )
    message = first.choices[0].message
    assert message.tool_calls, first
    json.loads(message.tool_calls[0].function.arguments)
    messages += [
        message.model_dump(),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 degrees"},
    ]
    second = CLIENT.chat.completions.create(model=model, messages=messages, tools=[TOOL], max_tokens=24)
    assert second.choices[0].message.role == "assistant"


@cell("chat")
def tool_loop() -> None:
    """A forced call, its result and the answer, on the bundled engine."""
    _tool_loop(MODEL, choice="required")


@cell("chat")
def tool_loop_upstream() -> None:
    """The loop on a generic upstream."""
    _tool_loop(AGENT, choice="auto")


@cell("chat")
def tool_stream() -> None:
    """A tool call in a stream, put together by the SDK."""
    with CLIENT.chat.completions.stream(
        model=AGENT, messages=[{"role": "user", "content": TOOL_PROMPT}], tools=[TOOL]
    ) as events:
        for _ in events:
            pass
        final = events.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"


@cell("chat")
def structured() -> None:
    """A parsed answer."""
    parsed = CLIENT.chat.completions.parse(model=MODEL, messages=USER, response_format=Sum, max_tokens=40)
    assert isinstance(parsed.choices[0].message.parsed, Sum)


@cell("chat")
def history() -> None:
    """Three turns with the answer's own dump as history."""
    messages = list(USER)
    for _ in range(3):
        answer = CLIENT.chat.completions.create(model=MODEL, messages=messages, max_tokens=8)
        messages += [answer.choices[0].message.model_dump(), {"role": "user", "content": "And then?"}]


@cell("chat")
def advisory_fields() -> None:
    """Fields that newer releases send."""
    CLIENT.chat.completions.create(
        model=MODEL,
        messages=USER,
        max_tokens=8,
        reasoning_effort="low",
        verbosity="low",
        store=False,
        modalities=["text"],
        safety_identifier="user-1",
        prompt_cache_key="key",
        metadata={"a": "b"},
    )


@cell("chat")
def refusal_names_the_field() -> None:
    """A bad value is a BadRequestError with `param`."""
    error = refused(
        openai.BadRequestError, lambda: CLIENT.chat.completions.create(model=MODEL, messages=USER, temperature=7)
    )
    assert error.param == "temperature", error
    assert "temperature" in error.message


@cell("completions")
def completion() -> None:
    """A completion, plain and as a stream."""
    answer = CLIENT.completions.create(model=MODEL, prompt=PROMPT, max_tokens=8)
    assert answer.choices[0].text is not None
    events = list(CLIENT.completions.create(model=MODEL, prompt=PROMPT, max_tokens=8, stream=True))
    assert events[-1].choices[0].finish_reason


@cell("embeddings")
def embeddings() -> None:
    """Vectors of a batch; the SDK requests base64 by itself."""
    answer = CLIENT.embeddings.create(model=ENCODER, input=["a cat", "a dog"])
    assert len(answer.data) == 2
    assert len(answer.data[0].embedding) > 100
    floats = CLIENT.embeddings.create(model=ENCODER, input="a cat", encoding_format="float")
    assert abs(floats.data[0].embedding[0] - answer.data[0].embedding[0]) < 1e-3


@cell("models")
def models() -> None:
    """The list of models."""
    assert MODEL in {model.id for model in CLIENT.models.list()}


@cell("responses")
def response() -> None:
    """A plain response."""
    answer = CLIENT.responses.create(model=MODEL, input=PROMPT, max_output_tokens=16, instructions="Be brief.")
    assert answer.output_text
    assert answer.usage
    assert answer.usage.output_tokens > 0


@cell("responses")
def response_stream() -> None:
    """A stream of events, put together by the SDK."""
    with CLIENT.responses.stream(model=MODEL, input=PROMPT, max_output_tokens=16) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert final.output_text


@cell("responses")
def response_tools() -> None:
    """A function call, its output and the answer."""
    items = [{"role": "user", "content": TOOL_PROMPT}]
    first = CLIENT.responses.create(model=AGENT, input=items, tools=[FLAT_TOOL], store=False)
    call = next(item for item in first.output if item.type == "function_call")
    items += [item.model_dump() for item in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
    second = CLIENT.responses.create(model=AGENT, input=items, tools=[FLAT_TOOL], store=False)
    assert second.output_text


@cell("responses")
def response_structured() -> None:
    """A parsed response."""
    parsed = CLIENT.responses.parse(model=AGENT, input=PROMPT, text_format=Sum)
    assert isinstance(parsed.output_parsed, Sum)


run()
