"""WordEncoder: a text is near another when they have words in common; no weights, microseconds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import Executor
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gateway.cache.similarity.decision import EntryAudits
from gateway.embedding.encoder import TextEncoder

DIMENSIONS = 384


class WordEncoder:
    """A vector has a place for each word; `may_run` holds batches back."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.has_begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._held: asyncio.Event | None = None

    @property
    def id(self) -> str:
        return "words"

    @property
    def dimensions(self) -> int:
        return DIMENSIONS

    def hold(self) -> asyncio.Event:
        """From now on nothing is encoded until the event is set."""
        self._held = asyncio.Event()
        self.has_begun.clear()
        return self._held

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self._loop.call_soon_threadsafe(self.has_begun.set)
        if self._held is not None:
            asyncio.run_coroutine_threadsafe(self._held.wait(), self._loop).result(60)
        self.texts += texts
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or ["nothing"]:
                vector[crc32(word.encode()) % DIMENSIONS] += 1.0
            vector /= np.linalg.norm(vector)
        return vectors

    async def load(self, thread: Executor) -> TextEncoder:
        """What an Embedder calls."""
        return self


class NearMatchModel:
    """Believes what is near; with `max_error_ratio` 0.01 everything above 0.75 is served, tightened above 0.8 and so
    on."""

    def match_probability(
        self, requested: str, stored: str, *, similarity: float, runner_up: float | None, track: EntryAudits | None
    ) -> float:
        return similarity

    def threshold(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        return 0.75 + 0.2 * tightening
