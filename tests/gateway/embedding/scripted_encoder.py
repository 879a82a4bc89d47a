"""ScriptedEncoder: an encoder whose batches wait until a test lets them go."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from threading import Semaphore

import numpy as np
from numpy.typing import NDArray

from gateway.embedding.encoder import TextEncoder

PATIENCE_S = 60.0


class ScriptedEncoder:
    """A text's vector holds its length; the empty text it cannot read. `batches` has what was requested, in order."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.fails_on: str | None = None
        self.failure: type[BaseException] = RuntimeError
        self._held = held
        self._may_run = Semaphore(0)

    @property
    def id(self) -> str:
        return "scripted"

    @property
    def dimensions(self) -> int:
        return 2

    def let_go(self, num_batches: int = 1) -> None:
        """Let batches end."""
        self._may_run.release(num_batches)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(list(texts))
        if self._held:
            assert self._may_run.acquire(timeout=PATIENCE_S), "the test forgot this batch"
        if self.fails_on in texts:
            raise self.failure(f"cannot encode {self.fails_on}")
        return np.array([[len(text), 1.0] if text else [0.0, 0.0] for text in texts], np.float32)

    async def load(self, thread: Executor) -> TextEncoder:
        """What an Embedder calls."""
        return self
