"""Operation: what a request of the public API wants from a model, and the endpoint of a deployment that does it."""

from __future__ import annotations

from typing import Final

import msgspec


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One kind of request that routes can serve."""

    name: str
    """Name in the cache's fingerprint, in records and in errors."""
    path: bytes
    """Path of the endpoint below the base of a deployment's API."""


CHAT: Final = Operation("chat", b"/chat/completions")
COMPLETIONS: Final = Operation("completions", b"/completions")
EMBEDDINGS: Final = Operation("embeddings", b"/embeddings")
