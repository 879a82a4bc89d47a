"""Images larger than a model looks at: made smaller before they travel, off the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ImagePart, UserMessage
from gateway.util.workers import Workers

MAX_WAITING: Final = 8
"""Requests whose images wait for the one worker; further ones go on as they came."""
BYTES_PER_PIXEL: Final = 8
"""Memory for one while an image is turned upright and scaled."""


class ImageShrinker:
    """One worker thread for all requests; what has no room there goes on as it came."""

    def __init__(self, max_unpacked_bytes: int | None = None) -> None:
        """An image that unpacks to more than `max_unpacked_bytes` goes on as it came, too; None: there is no bound."""
        self._max_pixels = None if max_unpacked_bytes is None else max_unpacked_bytes // BYTES_PER_PIXEL
        self._worker = Workers(1, name="images")
        self._num_waiting = 0

    async def shrink(self, request: ChatRequest, max_side_px: int) -> tuple[ChatRequest, int]:
        """The request with images scaled to `max_side_px` at their longer side, and how many tokens that saves.

        Raises InvalidRequest for an image that is none.
        """
        if not has_images(request) or self._num_waiting >= MAX_WAITING:
            return request, 0
        self._num_waiting += 1
        try:
            # A client that leaves does not stop the worker; it is over within one request's images.
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, _shrunk, request, max_side_px, self._max_pixels
            )
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        """Let the worker finish what it does and start nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)


def has_images(request: ChatRequest) -> bool:
    """Whether any message carries an image."""
    return any(
        type(message) is UserMessage
        and not isinstance(message.content, str)
        and any(type(part) is ImagePart for part in message.content)
        for message in request.messages
    )


def _shrunk(request: ChatRequest, max_side_px: int, max_pixels: int | None) -> tuple[ChatRequest, int]:
    from gateway.trimming.image_scaling import shrunk  # only who has images pays for Pillow's import

    return shrunk(request, max_side_px, max_pixels)
