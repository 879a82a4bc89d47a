"""A gateway process that runs out of files, and whose log nobody reads (fault row 42)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.processes import ROOT
from tests.gateway.scripted import ScriptedUpstream
from tests.gateway.stack import Reply, chat, encode

NUM_FILES = 64
PIPE_BYTES = 64 * 1024


async def call(path: Path, raw: bytes) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(raw)
    data = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return Reply(data)


@asynccontextmanager
async def cramped(folder: Path, engine: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """A gateway with few open files whose output is a pipe that nobody empties; (process, public socket)."""
    policy = folder / "policy.yaml"
    policy.write_text(f'schema_version: 1\ndeployments: [{{id: only, url: "unix:{engine}", model: tiny}}]\n')
    public = folder / "public.sock"
    flags = ("--policy", policy, "--public-listen", f"unix:{public}", "--admin-listen", f"unix:{folder}/admin.sock")
    command = " ".join(map(str, (sys.executable, "-P", "-m", "gateway", "gateway", *flags, "--runtime-dir", folder)))
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"ulimit -n {NUM_FILES}; exec {command} --log-level info"),
        stdout=writing,
        stderr=writing,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writing)
    try:
        async with asyncio.timeout(60):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    if (await call(public, encode(method="GET", path="/readyz"))).status == 200:
                        break
                await asyncio.sleep(0.05)
        assert process.returncode is None, os.read(reading, PIPE_BYTES).decode()
        yield process, public
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(reading)


async def test_with_few_files_and_a_log_that_nobody_reads_requests_are_served(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(tmp_path / "engine.sock") as engine,
        cramped(tmp_path, engine.path) as (process, public),
    ):
        for _ in range(PIPE_BYTES // 250):  # each leaves a longer line in the log
            assert (await call(public, encode(chat()))).status == 200

        idle = [await asyncio.open_unix_connection(str(public)) for _ in range(3 * NUM_FILES)]
        probe = await call(tmp_path / "admin.sock", encode(method="GET", path="/livez", headers={"host": "localhost"}))
        assert probe.status == 200, "the admin listener has files of its own"
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(20):
            while True:  # the gateway notices the closed ones in its next turns
                with contextlib.suppress(ConnectionError, ValueError, IndexError):
                    if (await call(public, encode(chat()))).status == 200:
                        break
                await asyncio.sleep(0.02)

        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 40) == 0
