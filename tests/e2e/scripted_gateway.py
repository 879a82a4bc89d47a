"""A gateway on TCP ports in front of a scripted upstream, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.gateway.scripted import Script, ScriptedUpstream, Wire, complete

START_TIMEOUT_S = 60.0
_POLICY = """
schema_version: 1
deployments: [{{id: only, url: "unix:{folder}/only.sock", model: tiny, operations: [chat, completions, embeddings]}}]
"""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a gateway listens."""

    url: str
    admin_url: str


_TEXT_COMPLETION = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "tiny",
    "choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}
_ANSWERS: dict[str, dict[str, object]] = {
    "/completions": _TEXT_COMPLETION,
    "/embeddings": {
        "object": "list",
        "data": [{"index": 0, "object": "embedding", "embedding": [0.5, -0.5]}],
        "model": "tiny",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    },
    "/tokenize": {"count": 2, "tokens": [1, 2], "max_model_len": 2048},
    "/detokenize": {"prompt": "hello"},
}


async def serve_any(wire: Wire) -> None:
    """Answer each endpoint in its own form."""
    path = wire.request.line.split(" ")[1]
    body = next((body for end, body in _ANSWERS.items() if path.endswith(end) and "/chat/" not in path), None)
    if body is None:
        await complete(wire)
    elif not wire.request.json.get("stream"):
        await wire.answer(json.dumps(body).encode())
    else:
        await wire.start_stream()
        for event in (json.dumps(body).encode(), b"[DONE]"):
            await wire.event(event)
        await wire.end()


@contextmanager
def scripted_gateway(
    folder: Path, more_policy: str = "", script: Script | None = None, settings: Mapping[str, object] | None = None
) -> Iterator[Addresses]:
    """Answers every good request at once, whatever it requests, or as `script` does; `more_policy` goes below the
    deployments. A whole document in its place may have the deployments that the shipped policy has."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted gateway")
    thread.start()
    stop = asyncio.Event()
    started: asyncio.Future[Addresses] = loop.create_future()
    running = asyncio.run_coroutine_threadsafe(_serve(folder, more_policy, script, settings or {}, started, stop), loop)
    try:
        yield asyncio.run_coroutine_threadsafe(_within(started), loop).result(START_TIMEOUT_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        try:
            running.result(START_TIMEOUT_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _within(started: asyncio.Future[Addresses]) -> Addresses:
    return await started


async def _serve(
    folder: Path,
    more_policy: str,
    script: Script | None,
    settings: Mapping[str, object],
    started: asyncio.Future[Addresses],
    stop: asyncio.Event,
) -> None:
    policy = folder / "policy.yaml"
    is_whole = "schema_version:" in more_policy
    policy.write_text(more_policy if is_whole else _POLICY.format(folder=folder) + more_policy)
    config = config_of(
        {
            "public.listen": "127.0.0.1:0",
            "admin.listen": "127.0.0.1:0",
            "policy.document": policy,
            "process.runtime_dir": folder,
            "process.drain_timeout_s": 1.0,
            **settings,
        }
    )
    try:
        async with AsyncExitStack() as exits:
            for name in ("small", "large") if is_whole else ("only",):
                upstream = await exits.enter_async_context(ScriptedUpstream(folder / f"{name}.sock"))
                upstream.otherwise = script or serve_any
            gateway = Gateway(config, log_stream=io.BytesIO())
            await gateway.start()
            try:
                (public,), (admin,) = gateway.server.addresses["public"], gateway.server.addresses["admin"]
                started.set_result(Addresses(f"http://{public}", f"http://{admin}"))
                await stop.wait()
            finally:
                await gateway.stop(drain_timeout_s=0)
    except BaseException as error:  # whoever waits for the start has to learn of it, whatever it is
        if not started.done():
            started.set_exception(error)
        raise
