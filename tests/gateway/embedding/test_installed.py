"""The encoder that comes with the package: made once, mended when damaged, and without torch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.embedding.installed import InstalledEncoder
from gateway.embedding.make import graph_file
from gateway.embedding.model_files import EncoderUnavailable, ModelFiles
from gateway.embedding.onnx_encoder import OnnxEncoder

_IN_A_PROCESS = """
import asyncio, sys
from pathlib import Path
from gateway.embedding.embedder import Embedder
from gateway.embedding.installed import InstalledEncoder

async def run():
    embedder = Embedder(InstalledEncoder(Path(sys.argv[1]), "int8").load, count=print, on_failure=print)
    embedder.start()
    async with asyncio.timeout(60):
        while not embedder.is_ready:
            await asyncio.sleep(0.02)
    vector = await embedder.embed("what is loaded?")
    await embedder.aclose()
    print(len(vector), *(name for name in ("torch", "transformers", "onnx") if name in sys.modules))

asyncio.run(run())
"""

_NEVER_DONE = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "pid").write_text(f"{os.getpid()}\\n")
time.sleep(600)
"""


async def loaded(folder: Path) -> object:
    with ThreadPoolExecutor(1) as thread:
        return await InstalledEncoder(folder, "int8").load(thread)


async def test_a_damaged_graph_is_made_anew_and_then_loaded(tmp_path: Path, model_files: ModelFiles) -> None:
    file = graph_file(tmp_path, model_files, "int8")
    damaged = file.make(lambda: b"no graph at all")
    damaged.write_bytes(b"not even that")
    assert isinstance(await loaded(tmp_path), OnnxEncoder)
    assert file.find() not in (None, damaged)


async def test_what_the_runtime_does_not_take_is_stated_with_its_path(tmp_path: Path, model_files: ModelFiles) -> None:
    graph_file(tmp_path, model_files, "int8").make(lambda: b"no graph at all")
    with pytest.raises(EncoderUnavailable, match=str(tmp_path)):
        await loaded(tmp_path)


async def test_a_folder_that_cannot_be_made_is_stated(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EncoderUnavailable, match="could not be made"):
        await loaded(tmp_path / "file" / "folder")


async def test_cancelled_while_the_graph_is_made_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.embedding.installed._MAKE", ("-c", _NEVER_DONE))
    notified = tmp_path / "pid"
    task = asyncio.create_task(loaded(tmp_path))
    async with asyncio.timeout(60):
        while not (notified.exists() and notified.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(notified.read_text()), 0)


def test_the_gateway_needs_no_torch_to_encode(graph_folder: Path, int8: OnnxEncoder) -> None:
    command = [sys.executable, "-c", _IN_A_PROCESS, str(graph_folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["encoded", "384"], run.stderr
