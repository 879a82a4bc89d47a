"""ImageShrinker: scales images down, off the event loop, to the size that a model uses."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ImagePart, UserMessage
from gateway.util.workers import Workers

MAX_WAITING: Final = 8
"""Number of requests that may wait for the one worker; further ones keep their images."""
BYTES_PER_PIXEL: Final = 8
"""Peak memory in bytes per pixel while an image is turned upright and scaled."""


class ImageShrinker:
    """One worker thread that scales the images of all requests; a request that finds its queue full stays unchanged."""

    def __init__(self, max_unpacked_bytes: int | None = None) -> None:
        """Create the worker.

        Args:
            max_unpacked_bytes: Unpacked size beyond which an image stays as it is; None for no bound.
        """
        self._max_pixels = None if max_unpacked_bytes is None else max_unpacked_bytes // BYTES_PER_PIXEL
        self._worker = Workers(1, name="images")
        self._num_waiting = 0

    async def shrink(self, request: ChatRequest, max_side_px: int) -> tuple[ChatRequest, int]:
        """Return the request with images of at most `max_side_px` at their longer side, and the number of tokens saved.

        Raises:
            InvalidRequest: A part declared as an image cannot be read as one.
        """
        if not has_images(request) or self._num_waiting >= MAX_WAITING:
            return request, 0
        self._num_waiting += 1
        try:
            # A cancelled request does not stop the worker; it ends after that request's images.
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, _shrunk, request, max_side_px, self._max_pixels
            )
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        """Finish the image in work and start no further one."""
        self._worker.shutdown(wait=False, cancel_futures=True)


def has_images(request: ChatRequest) -> bool:
    """Return whether any message carries an image."""
    return any(
        type(message) is UserMessage
        and not isinstance(message.content, str)
        and any(type(part) is ImagePart for part in message.content)
        for message in request.messages
    )


def _shrunk(request: ChatRequest, max_side_px: int, max_pixels: int | None) -> tuple[ChatRequest, int]:
    from gateway.trimming.image_scaling import shrunk  # importing Pillow costs memory, so only requests with images do

    return shrunk(request, max_side_px, max_pixels)
