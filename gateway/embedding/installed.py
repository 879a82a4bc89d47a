"""InstalledEncoder: the encoder of an installed package or a folder, whose graph a separate process builds once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.embedding.encoder import Precision
from gateway.embedding.make import encoder_id, graph_file
from gateway.embedding.model_files import EncoderUnavailable, ModelFiles, model_files

if TYPE_CHECKING:
    from gateway.embedding.onnx_encoder import OnnxEncoder

_MAKE = ("-m", "gateway.embedding.make")


class InstalledEncoder:
    """Loader of a model; all-MiniLM-L6-v2's graphs in `folder` take about 60 MB for int8 and 90 MB for fp32."""

    def __init__(self, folder: Path, precision: Precision, model: str = "") -> None:
        """Create a loader; `model` is a folder or an installed package, and empty for all-MiniLM-L6-v2."""
        self._folder = folder
        self._precision = precision
        self._model = model

    async def load(self, thread: Executor) -> OnnxEncoder:
        """Return the encoder, warmed up, with blocking work in `thread`; raises EncoderUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            files = await loop.run_in_executor(thread, model_files, self._model)
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
            *(sys.executable, *_MAKE, str(self._folder), self._precision, self._model),
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


def _open(graph: Path, files: ModelFiles, name: str) -> OnnxEncoder:
    from gateway.embedding.onnx_encoder import OnnxEncoder  # ONNX Runtime costs memory: it is imported where it is used

    encoder = OnnxEncoder(graph, files, name)
    encoder.warm_up()
    return encoder
