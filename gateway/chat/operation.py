"""Operation: what a request of the public API wants from a model, and the endpoint of a deployment that does it."""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.policy.values import OperationName


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One kind of request that routes can serve."""

    name: OperationName
    """Name in policies, in the cache's fingerprint and in errors."""
    path: bytes
    """Path of the endpoint below the base of a deployment's API."""
    generates: bool = True
    """True if the answer is text of a length that is unknown beforehand; it may then be streamed."""
    answer: str = "chat completion"
    """Name of an answer in errors."""
    own_fields: frozenset[str] = frozenset()
    """Fields of its requests that chat completions do not have, with all that is in them."""


CHAT: Final = Operation("chat", b"/chat/completions")
COMPLETIONS: Final = Operation(
    "completions", b"/completions", answer="text completion", own_fields=frozenset({"prompt", "echo", "suffix"})
)
EMBEDDINGS: Final = Operation(
    "embeddings",
    b"/embeddings",
    generates=False,
    answer="list of embeddings",
    own_fields=frozenset({"input", "dimensions", "encoding_format"}),
)
OPERATIONS: Final = (CHAT, COMPLETIONS, EMBEDDINGS)
