"""A gateway on TCP ports in front of a scripted upstream, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.gateway.scripted import Script, ScriptedUpstream

START_TIMEOUT_S = 60.0
_POLICY = """
schema_version: 1
deployments: [{{id: only, url: "unix:{folder}/only.sock", model: tiny}}]
"""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a gateway listens."""

    url: str
    admin_url: str


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
                upstream.otherwise = script or upstream.otherwise
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
