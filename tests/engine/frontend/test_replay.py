"""The openai SDK sends back what it got, over several turns, plain and put together from streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from engine.protocol import Add
from tests.engine.frontend.conftest import Running, StartFront, chat
from tests.engine.frontend.fake_core import FakeCore
from tests.engine.frontend.tiny_model import END, write_model
from tests.gateway.stack import running as gateway_running

TEMPLATE = (
    "{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif -%}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}<|im_start|>assistant\n"
)
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f", "strict": None, "parameters": {"type": "object"}}}]
ANSWERS = ['<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "it is one", "that is two"]


async def next_turn(client: openai.AsyncOpenAI, messages: list[Any], *, streamed: bool) -> dict[str, Any]:
    """The next answer, as the SDK dumps it."""
    fields: Any = {"model": "tiny", "messages": messages, "tools": TOOLS}
    if not streamed:
        message: Any = (await client.chat.completions.create(**fields)).choices[0].message
    else:
        async with client.chat.completions.stream(**fields) as stream:
            message = (await stream.get_final_completion()).choices[0].message
    dumped: dict[str, Any] = message.model_dump()
    return dumped


async def three_turns(running: Running, core: FakeCore, client: openai.AsyncOpenAI, *, streamed: bool) -> None:
    """A conversation with a call of a tool, in which every answer is sent back as it came."""
    messages: list[Any] = [{"role": "user", "content": "what is f of one"}]
    for answer in ANSWERS:
        turn = asyncio.create_task(next_turn(client, messages, streamed=streamed))
        add = await core.next_add()
        ids = running.ids(answer)
        core.emit(add.seq_id, ids[:3])
        core.emit(add.seq_id, [*ids[3:], END], "stop")
        messages.append(await turn)
        follow_up = {"role": "user", "content": "and now?"}
        if messages[-1].get("tool_calls"):
            follow_up = {"role": "tool", "content": "1", "tool_call_id": messages[-1]["tool_calls"][0]["id"]}
        messages.append(follow_up)
    assert [message["role"] for message in messages[:3]] == ["user", "assistant", "tool"]
    assert messages[-2]["content"] == "that is two"
    assert '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>' in prompt_of(running, add)


@pytest.mark.parametrize("streamed", [False, True])
async def test_three_turns_with_a_call_are_served(start_front: StartFront, tmp_path: Path, streamed: bool) -> None:
    async with start_front(max_model_len=4096, model=write_model(tmp_path / "calling", TEMPLATE)) as running:
        core = await running.core()
        client = sdk(running.client)
        await three_turns(running, core, client, streamed=streamed)


def sdk(http: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="x", max_retries=0, http_client=http)


def prompt_of(running: Running, add: Add) -> str:
    return running.tokenizer.decode(add.prompt_token_ids, skip_special_tokens=False)


POLICY = """
schema_version: 1
deployments:
  - {{id: front, url: "unix:{path}", model: tiny}}
routes:
  - {{id: main, match: {{models: [tiny]}}, select: {{policy: first_available, candidates: [front]}}}}
"""


@pytest.mark.parametrize("streamed", [False, True])
async def test_three_turns_are_served_through_the_gateway(
    start_front: StartFront, tmp_path: Path, streamed: bool
) -> None:
    model = write_model(tmp_path / "calling", TEMPLATE)
    async with start_front(max_model_len=4096, model=model) as running:
        core = await running.core()
        folder = tmp_path / "gateway"
        folder.mkdir()
        async with gateway_running(folder, policy=POLICY.format(path=running.path)) as stack:
            transport = httpx.AsyncHTTPTransport(uds=f"{folder}/public.sock")
            async with httpx.AsyncClient(transport=transport, timeout=10) as http:
                await three_turns(running, core, sdk(http), streamed=streamed)
                schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {"const": 1}}}}
                fields = chat(response_format=schema, stream=streamed)
                request = asyncio.create_task(http.post("http://test/v1/chat/completions", json=fields))
                core.emit((await core.next_add()).seq_id, running.ids("hello"), "length")
                assert (await request).headers["x-penstock-schema-ignored"] == "not"
            assert stack.small.received == []
