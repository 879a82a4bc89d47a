"""PassageSimilarity: cosines of passages to the question, by the gateway's encoder, within a bounded time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

from gateway.embedding.encoder import Vector
from gateway.util.fair_bounded_dict import FairRecent
from routing_policies.policy.document import Trim

MAX_WINDOWS: Final = 32
"""Number of passages of one request that are compared; they lie near the cut that the budget makes."""
MAX_KNOWN: Final = 4096
"""Number of passages whose vectors are remembered; those of a document that comes back cost nothing."""
_TOGETHER: Final = 4
"""Number of passages in the encoder's queue at once: other requests' texts do not wait for all of them."""
_MAX_WAITING: Final = 2
"""Number of texts in the encoder's queue beyond which passages are not compared."""


class PassageEncoder(Protocol):
    """The part of the Embedder that trimming uses."""

    @property
    def encoder_id(self) -> str | None:
        """Return the encoder's id; None until it is ready."""

    @property
    def num_waiting(self) -> int:
        """Return the number of texts that no batch has taken yet."""

    def start(self) -> None:
        """Begin to load; returns at once."""

    async def embed(self, text: str) -> Vector | None:
        """Return the vector of a text, or None where there is none."""


class PassageSimilarity:
    """Comparison of passages with a question; without an encoder in time, words alone decide."""

    __slots__ = ("_embedder", "_known", "max_windows")

    def __init__(self, embedder: PassageEncoder, *, max_windows: int = MAX_WINDOWS) -> None:
        self._embedder = embedder
        self._known: FairRecent[bytes, Vector] = FairRecent(MAX_KNOWN)
        self.max_windows = max_windows

    def is_ready(self, rule: Trim) -> bool:
        """Return whether passages can be compared now; begins to load the encoder for later requests."""
        if "extract_passages" not in rule.strategies or not rule.similarity_wait_ms:
            return False
        if self._embedder.encoder_id is None:
            self._embedder.start()
            return False
        return self._embedder.num_waiting <= _MAX_WAITING

    async def of(
        self, question: str, windows: Sequence[tuple[str, tuple[int, ...]]], wait_ms: int, tenant: str
    ) -> dict[int, float] | None:
        """Return the cosine of each window's segments to the question.

        None when not all are known in time, because a selection by some would differ between equal requests. Vectors
        that were computed until then are remembered.

        Args:
            question: The question.
            windows: Texts, each with the numbers of its segments.
            wait_ms: Longest wait in milliseconds.
            tenant: Sender of the texts. What others sent makes its requests no faster, and changes no selection.
        """
        if not question or not windows:
            return None
        try:
            async with asyncio.timeout(wait_ms / 1e3):
                wanted = await self._vector(question, tenant)
                if wanted is None:
                    return None
                found: dict[int, float] = {}
                for begin in range(0, len(windows), _TOGETHER):
                    batch = windows[begin : begin + _TOGETHER]
                    vectors = await asyncio.gather(*(self._vector(text, tenant) for text, _ in batch))
                    for vector, (_, numbers) in zip(vectors, batch, strict=True):
                        if vector is not None:
                            found |= dict.fromkeys(numbers, float(wanted @ vector))
                return found or None
        except TimeoutError:
            return None

    async def _vector(self, text: str, tenant: str) -> Vector | None:
        content = f"{self._embedder.encoder_id}\0{tenant}\0{text}"
        key = hashlib.blake2b(content.encode(errors="replace"), digest_size=16).digest()
        known = self._known.get(key)
        if known is not None:
            return known
        vector = await self._embedder.embed(text)
        if vector is not None:
            self._known.put(key, vector, tenant)
        return vector
