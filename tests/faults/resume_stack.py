"""A gateway over two real engines with one model, whose streams break at chosen points, and what clients then read."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.e2e.lone_engine import LoneEngine, lone_engine
from tests.gateway.stack import NO_EJECTION, Stack, holding_nothing
from tests.support.fault_proxy import FaultProxy

KEY_VARIABLE: Final = "RESUME_TEST_KEY"
_POLICY: Final = """
schema_version: 1
deployments:
  - {{id: first, url: "{first}", model: small, resume_key_env: {key}}}
  - {{id: second, url: "{second}", model: small, resume_key_env: {key}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [first, second]}}
    timeouts: {{connect_ms: 1000, first_token_ms: 20000, inter_token_ms: {inter_token_ms}, total_ms: 60000}}
    resume: {resume}
"""

_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
_PERSON: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_COLUMNS: Final = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Members of the log probabilities of a text completion."""
_STORY: Final = [{"role": "user", "content": "Write a story about a ship and its crew."}]
REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0, "ignore_eos": True},
    "seeded": {"temperature": 1.1, "seed": 7, "ignore_eos": True},
    "penalties": {
        "temperature": 0.9,
        "seed": 8,
        "top_p": 0.9,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
    },
    "stop strings": {"temperature": 1.0, "seed": 9, "stop": ["zzq", "n ab", "e thx"], "ignore_eos": True},
    "logprobs": {"temperature": 1.0, "seed": 9, "logprobs": True, "top_logprobs": 2, "stop": ["e thx"]},
    "schema": {
        "temperature": 1.0,
        "seed": 10,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "person", "strict": True, "schema": _PERSON},
        },
    },
    "tools": {"temperature": 1.0, "seed": 11, "tools": [_WEATHER], "tool_choice": "required"},
    "choices": {"temperature": 1.0, "seed": 12, "n": 3, "stop": ["e "]},
    "tool choices": {"temperature": 1.0, "seed": 13, "n": 2, "tools": [_WEATHER], "tool_choice": "required"},
    "completion": {"prompt": "A ship and its crew", "temperature": 1.0, "seed": 14, "logprobs": 2, "ignore_eos": True},
    "completions": {"prompt": ["A ship", "Its crew"], "temperature": 1.0, "seed": 15, "n": 2, "stop": ["e t"]},
}
"""Fields of streams of each kind."""


def stream_of(kind: str, max_tokens: int = 40) -> dict[str, Any]:
    """Return the body of a streamed request of a kind, with its usage at the end."""
    usage, fields = {"include_usage": True}, REQUESTS[kind]
    fixed = {"model": "auto", "stream": True, "stream_options": usage, "max_tokens": max_tokens, **fields}
    return fixed if "prompt" in fields else {**fixed, "messages": _STORY}


def path_of(body: Mapping[str, Any]) -> str:
    """Return the path of a request of some kind."""
    return "/v1/completions" if "prompt" in body else "/v1/chat/completions"


def num_roles_of(body: Mapping[str, Any]) -> int:
    """Return the number of events with a role in a whole stream."""
    return 0 if "prompt" in body else body.get("n", 1)


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause of one stream."""

    seconds: float
    """Time from the gateway's notice of the failure to the next event elsewhere."""
    num_tokens: int
    """Tokens that the client had."""


@dataclass(slots=True)
class ReadChoice:
    """Everything that a client reads of one choice."""

    content: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Name and arguments of each tool call."""
    logprobs: list[str] = field(default_factory=list)
    """JSON of the log probabilities of each token."""
    finish: str | None = None

    def read(self, choice: dict[str, Any]) -> None:
        """Add what an event has of it."""
        delta = choice.get("delta") or {}
        self.content += choice.get("text") or delta.get("content") or ""
        self.finish = choice["finish_reason"] or self.finish
        for piece in delta.get("tool_calls") or ():
            name, arguments = self.calls.get(piece["index"], ("", ""))
            function = piece["function"]
            self.calls[piece["index"]] = (name + (function.get("name") or ""), arguments + function["arguments"])
        logprobs = choice.get("logprobs") or {}
        columns = [logprobs[name] for name in _COLUMNS if name in logprobs]
        self.logprobs += map(json.dumps, logprobs.get("content") or zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Everything that a client reads of a stream, without its split into chunks."""

    choices: tuple[ReadChoice, ...]
    """What each choice has, the first one first."""
    error: str | None
    """Message of an error event."""
    usage: tuple[int, int] | None
    """Tokens of prompt and completion."""
    num_identities: int
    """Different pairs of `id` and `created`."""
    num_roles: int
    is_whole: bool
    """True if the stream ended with `[DONE]` and had no error event."""


def read_stream(body: bytes) -> ReadStream:
    """Read an event stream as OpenAI's clients do."""
    choices: dict[int, ReadChoice] = {}
    num_roles, is_whole, error = 0, False, None
    identities: set[tuple[str, int]] = set()
    usage: tuple[int, int] | None = None
    for event in body.split(b"\n\n"):
        assert not event or event.startswith(b"data: "), f"a client would see {event[:80]!r}"
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            is_whole = True
        if data in (b"", b"[DONE]"):
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            error = chunk["error"]["message"]
            continue
        identities.add((chunk["id"], chunk["created"]))
        if (found := chunk.get("usage")) is not None:
            usage = (found["prompt_tokens"], found["completion_tokens"])
        for choice in chunk["choices"]:
            num_roles += "role" in choice.get("delta", ())
            choices.setdefault(choice["index"], ReadChoice()).read(choice)
    found = tuple(choices[index] for index in sorted(choices))
    return ReadStream(found, error, usage, len(identities), num_roles, is_whole and error is None)


@contextmanager
def two_engines(folder: Path, *flags: str) -> Iterator[tuple[LoneEngine, LoneEngine]]:
    """Run two engines with the small bundled model and the key in `KEY_VARIABLE`."""
    folders = [folder / "first", folder / "second"]
    for one in folders:
        one.mkdir()
    keyed = ("--resume-key-env", KEY_VARIABLE, *flags)
    with lone_engine(folders[0], *keyed) as first, lone_engine(folders[1], *keyed) as second:
        yield first, second


class ResumeStack(Stack):
    """One gateway in front of two engines, each behind a proxy."""

    def __init__(self, gateway: Gateway, proxies: tuple[FaultProxy, FaultProxy], log: io.BytesIO) -> None:
        super().__init__(gateway, None, None, log)  # type: ignore[arg-type]  # no scripted upstreams
        self.first, self.second = proxies
        self.num_not_begun = 0
        """Requests that ended before the first byte of a stream."""

    async def read(self, body: dict[str, Any]) -> ReadStream | None:
        """Send a streamed request and read its answer.

        None where the deployment failed or began to drain before the stream began, and the budget of retries was used
        up: with half of all requests broken it soon is.
        """
        reply = await self.call(body, path=path_of(body))
        if reply.status in (502, 503):
            self.num_not_begun += 1
            return None
        assert reply.status == 200, reply.body
        return read_stream(reply.body)

    async def take_out(self, deployment: str) -> None:
        """Drain a deployment as an operator does; returns once it holds none of this gateway's streams."""
        reply = await self.call({"drain": True}, path=f"/admin/api/deployments/{deployment}/drain", admin=True)
        assert reply.status == 200, reply.body
        live = self.gateway._current().deployments[deployment]
        async with asyncio.timeout(30):
            while live.in_flight:
                await asyncio.sleep(0.005)

    def pauses(self) -> list[Pause]:
        """Return each pause, from the record of each request that was resumed; only its last one counts."""
        details = [line.get("detail") or "" for line in self.lines()]
        words = [detail.split() for detail in details if detail.startswith("resumed at")]
        return [Pause(float(one[-2]), int(one[4])) for one in words]

    async def num_resumed(self, end: str = "resumed") -> float:
        """Return the number of continuations with this end."""
        return await self.metric("penstock_resumed_streams_total", end=end)


@asynccontextmanager
async def resuming(
    folder: Path,
    first: LoneEngine,
    second: LoneEngine,
    *,
    resume: str = "exact",
    inter_token_ms: int = 5000,
) -> AsyncIterator[ResumeStack]:
    """Run a gateway that continues streams of `first` at `second`; on the way out nothing may be held."""
    assert KEY_VARIABLE in os.environ, "the gateway reads the key there"
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(FaultProxy(engine.path)) for engine in (first, second)]
        policy = folder / "policy.yaml"
        policy.write_text(
            _POLICY.format(
                first=proxies[0].url,
                second=proxies[1].url,
                key=KEY_VARIABLE,
                resume=resume,
                inter_token_ms=inter_token_ms,
            )
        )
        config = config_of(
            {
                "public.listen": f"unix:{folder}/public.sock",
                "admin.listen": f"unix:{folder}/admin.sock",
                "policy.document": policy,
                "process.runtime_dir": folder,
            }
        )
        log = io.BytesIO()
        gateway = Gateway(config, log_stream=log, ejection=NO_EJECTION)
        async with holding_nothing(ResumeStack(gateway, (proxies[0], proxies[1]), log)) as found:
            yield found
