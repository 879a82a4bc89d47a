"""BodyMemory: the memory that a body which is read whole may take."""

from __future__ import annotations

from typing import Protocol


class BodyMemory(Protocol):
    """Memory that is reserved before more of a body is read."""

    async def cover(self, num_bytes: int) -> None:
        """Wait until so many bytes in all may be held; raises a GatewayError when they may not."""
