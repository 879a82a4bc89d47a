"""What an engine of others must do behind the gateway; each check is a sentence of the table."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

_LONG_TOKENS: Final = 1500
_READING_S: Final = 6.0
"""Pause of a person between two turns; so long, a first token that came late makes routing cautious no more."""
_PATIENCE_S: Final = 120.0
_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,  # without it vLLM lets arguments leave the schema, as OpenAI does
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway with two deployments, `a` and `b`: one engine under two addresses, or two engines."""

    client: httpx.AsyncClient
    admin: httpx.AsyncClient
    restart: Callable[[], Awaitable[None]]
    """Kill the engine; return once it listens again."""
    kill: Callable[[], Awaitable[None]]

    async def chat(self, text: str, **fields: Any) -> httpx.Response:
        """Send one message."""
        return await self.client.post("/v1/chat/completions", json=_body(text, **fields))

    async def deployments(self) -> dict[str, Any]:
        """Return the live state of deployments, by id."""
        found = _ok(await self.admin.get("/admin/api/deployments")).json()
        return {one["id"]: one for one in found["deployments"]}


def _ok(response: httpx.Response) -> httpx.Response:
    """Return the response if it succeeded; a refusal's text is the failure's."""
    assert response.status_code == 200, response.text
    return response


def _body(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "auto", "messages": messages, "max_tokens": 32, "temperature": 0, **fields}


async def plain(gateway: Gateway) -> None:
    """A plain answer has text, usage and a finish reason."""
    answer = _ok(await gateway.chat("Say hello.")).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}
    assert answer["usage"]["completion_tokens"] > 0


async def stream(gateway: Gateway) -> None:
    """A stream brings the plain answer's text piece by piece, and its end."""
    whole = _ok(await gateway.chat("Count to five.")).json()["choices"][0]["message"]["content"]
    events = await _events(gateway, _body("Count to five.", stream=True))
    pieces = [choice["delta"].get("content") or "" for event in events[:-1] for choice in event["choices"]]
    assert "".join(pieces) == whole, f"{''.join(pieces)!r} is not {whole!r}"
    assert sum(map(bool, pieces)) > 1
    assert events[-1] == {}, "no [DONE]"


async def usage(gateway: Gateway) -> None:
    """A stream that asks for usage brings it."""
    events = await _events(gateway, _body("Hello.", stream=True, stream_options={"include_usage": True}))
    found = [event["usage"] for event in events if event.get("usage")]
    assert found, "no event has usage"
    assert found[-1]["completion_tokens"] > 0


async def _events(gateway: Gateway, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a stream; its end is an empty one."""
    async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ").replace("[DONE]", "{}")) for line in lines]


async def cancel(gateway: Gateway) -> None:
    """When a client leaves, generation stops: the next answer does not wait for the rest of the one left."""
    started = time.perf_counter()
    _ok(await gateway.chat("Tell a long story.", max_tokens=300, ignore_eos=True))
    long_s = (time.perf_counter() - started) * _LONG_TOKENS / 300
    body = _body("Tell a long story.", stream=True, max_tokens=_LONG_TOKENS, ignore_eos=True)
    async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
        num_lines = 0
        async for _ in response.aiter_lines():
            num_lines += 1
            if num_lines == 8:
                break
    started = time.perf_counter()
    _ok(await gateway.chat("Say hello.", max_tokens=4))
    assert time.perf_counter() - started < long_s / 2


async def structured(gateway: Gateway) -> None:
    """An answer under a JSON schema fits it."""
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": _SCHEMA, "strict": True}}
    answer = _ok(await gateway.chat("A trip to Rome for 3 days.", max_tokens=60, response_format=form))
    value = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert isinstance(value["city"], str)
    assert isinstance(value["days"], int)


async def tools(gateway: Gateway) -> None:
    """A named tool is called with arguments that fit."""
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = await gateway.chat("Weather in Rome?", tools=[_TOOL], tool_choice=choice, max_tokens=60)
    call = _ok(answer).json()["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "weather"
    assert isinstance(json.loads(call["function"]["arguments"])["city"], str)


async def load(gateway: Gateway) -> None:
    """The engine's own gauges show what runs there, whoever sent it."""
    bodies = [_body(f"Tell story {n}.", max_tokens=600, ignore_eos=True) for n in range(4)]
    running = [asyncio.ensure_future(gateway.client.post("/v1/chat/completions", json=body)) for body in bodies]
    try:
        deadline = time.monotonic() + _PATIENCE_S
        seen = 0
        while seen < 2 and time.monotonic() < deadline:
            report = (await gateway.deployments())["a"]["report"]
            seen = max(seen, report["running"] if report else 0)
            await asyncio.sleep(0.1)
        assert seen >= 2
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def affinity(gateway: Gateway) -> None:
    """The turns of conversations go where their prefix is cached, but for one in nine, which may find it too slow.

    Before, both deployments answer prompts of several lengths: only then is it known at both what a token costs there.
    """
    for number in range(48):
        await _turn(gateway, [_message("user", f"{number}? {'You are a teacher of sums. ' * 5 * (number % 5)}")])
    prefix = "You are a patient teacher of {0}. " * 40
    seen = [await _conversation(gateway, prefix.format(topic)) for topic in ("history", "botany", "music")]
    num_moves = sum(before != after for turns in seen for before, after in itertools.pairwise(turns))
    assert num_moves <= 1, seen


async def _conversation(gateway: Gateway, prefix: str) -> list[str]:
    """Return the deployment of each of four turns."""
    messages = [_message("system", prefix)]
    seen = []
    for number in range(4):
        await asyncio.sleep(_READING_S)
        messages.append(_message("user", f"Question {number}?"))
        deployment, text = await _turn(gateway, messages)
        seen.append(deployment)
        messages.append(_message("assistant", text))
    return seen


async def _turn(gateway: Gateway, messages: list[dict[str, str]]) -> tuple[str, str]:
    """Return the deployment of a streamed answer, and its text."""
    body = {"model": "auto", "messages": messages, "max_tokens": 4, "temperature": 0, "stream": True}
    async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        lines = [line async for line in response.aiter_lines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line.removeprefix("data: "))["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        return response.headers["x-penstock-deployment"], text


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


async def overload(gateway: Gateway) -> None:
    """Many requests at once are answered or refused with a time to come back, and none is lost."""
    found = await asyncio.gather(*(gateway.chat(f"Number {n}?", max_tokens=8) for n in range(48)))
    assert {response.status_code for response in found} <= {200, 429, 503}
    assert sum(response.status_code == 200 for response in found) >= 8
    for response in found:
        if response.status_code != 200:
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["message"]


async def health(gateway: Gateway) -> None:
    """A killed engine is an honest error, and is used again when it is back."""
    await gateway.kill()
    response = await gateway.chat("Say hello.")
    assert response.status_code in {502, 503}
    assert response.json()["error"]["message"]
    await gateway.restart()
    deadline = time.monotonic() + _PATIENCE_S
    while (response := await gateway.chat("Say hello.")).status_code != 200:
        assert time.monotonic() < deadline, response.text
        await asyncio.sleep(0.5)


Check = Callable[[Gateway], Awaitable[None]]
"""One check; it raises when something is wrong."""

CHECKS: Final[Mapping[str, Check]] = {
    one.__name__: one for one in (plain, stream, usage, cancel, structured, tools, load, overload, health, affinity)
}
CHECKS_BY_ENGINES: Final[Mapping[int, Mapping[str, Check]]] = {
    1: {name: check for name, check in CHECKS.items() if check is not affinity},
    2: {affinity.__name__: affinity},
}
"""Checks by the number of engines behind the gateway; `health`, which kills, is the last one of its group.

One engine under two addresses shares its prefixes, so only two show where a conversation's prefix is.
"""
