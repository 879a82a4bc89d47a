"""InstalledEncoder: the encoder of the installed package, whose graph a separate process builds once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from concurrent.futures import Executor
from pathlib import Path

from gateway.embedding.encoder import Precision, TextEncoder
from gateway.embedding.make import encoder_id, graph_file
from gateway.embedding.model_files import EncoderUnavailable, ModelFiles, installed_model

_MAKE = ("-m", "gateway.embedding.make")


class InstalledEncoder:
    """Loader of all-MiniLM-L6-v2; its graphs in `folder` take about 60 MB for int8 and 90 MB for fp32."""

    def __init__(self, folder: Path, precision: Precision) -> None:
        self._folder = folder
        self._precision = precision

    async def load(self, thread: Executor) -> TextEncoder:
        """Return the encoder, warmed up, with blocking work in `thread`; raises EncoderUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            files = await loop.run_in_executor(thread, installed_model)
            file = graph_file(self._folder, files, self._precision)
            graph = await loop.run_in_executor(thread, file.find)
            if graph is None:
                await self._make()
                graph = await loop.run_in_executor(thread, file.find)
        except OSError as error:
            raise EncoderUnavailable(f"{self._folder}: {error}") from error
        if graph is None:
            raise EncoderUnavailable(f"{self._folder}: the graph was made and is damaged; is the disk full?")
        return await loop.run_in_executor(thread, _open, graph, files, encoder_id(files, self._precision))

    async def _make(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_MAKE, str(self._folder), self._precision),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, output = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            last = output.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            raise EncoderUnavailable(f"the encoder's graph could not be made: {last[0]}")


def _open(graph: Path, files: ModelFiles, name: str) -> TextEncoder:
    from gateway.embedding.onnx_encoder import OnnxEncoder  # ONNX Runtime costs memory: it is imported where it is used

    encoder = OnnxEncoder(graph, files, name)
    encoder.warm_up()
    return encoder
