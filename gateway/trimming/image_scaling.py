"""Downscaling of the images inside a request; it imports Pillow, so callers import it at first use."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, Final

from PIL import Image, ImageOps, UnidentifiedImageError

from gateway.chat.request import ChatRequest
from gateway.errors import InvalidRequest

MAX_PIXELS: Final = 50_000_000
"""Pixels that one image may have once unpacked; a file of a few kilobytes can declare gigabytes."""
PIXELS_PER_TOKEN: Final = 750
"""Pixels counted as one token when savings are reported.

Models differ; this is the published rule of one large provider.
"""

_FORMATS: Final = ("JPEG", "PNG", "WEBP")
_JPEG_QUALITY: Final = 85


def shrunk(request: ChatRequest, max_side_px: int, max_pixels: int | None = None) -> tuple[ChatRequest, int]:
    """Return the request with smaller images, and the number of tokens saved.

    Equal images give equal bytes. The call takes milliseconds to seconds.

    Args:
        request: The request whose `data:` images are scaled.
        max_side_px: Longest side that an image keeps.
        max_pixels: Size beyond which an image stays as it is; MAX_PIXELS when None.

    Raises:
        InvalidRequest: An image cannot be read or has more than MAX_PIXELS.
    """
    messages: list[dict[str, Any]] = list(request.document["messages"])
    cut_tokens = 0
    for index, message in enumerate(messages):
        if not isinstance(message.get("content"), list):
            continue
        parts = list(message["content"])
        for place, part in enumerate(parts):
            if not isinstance(part, dict) or part.get("type") != "image_url":
                continue
            if not part["image_url"]["url"].startswith("data:"):
                continue  # an address, which the gateway does not fetch
            where = f"messages[{index}].content[{place}].image_url.url"
            found = _smaller(part["image_url"]["url"], max_side_px, max_pixels or MAX_PIXELS, where)
            if found is not None:
                url, cut_pixels = found
                parts[place] = {**part, "image_url": {**part["image_url"], "url": url}}
                messages[index] = {**message, "content": parts}
                cut_tokens += cut_pixels // PIXELS_PER_TOKEN
    return (request.with_messages(messages), cut_tokens) if cut_tokens else (request, 0)


def _smaller(url: str, max_side_px: int, max_pixels: int, where: str) -> tuple[str, int] | None:
    """Return the image as a smaller `data:` URL with the pixels it lost, or None when it must or may stay as it is."""
    data = _decoded(url, where)
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = image.width * image.height
            # Only the header has been read so far.
            if pixels > MAX_PIXELS:
                reason = f"must unpack to at most {MAX_PIXELS} pixels; got {pixels}"
                raise InvalidRequest(f"`{where}` {reason}.", param=where)
            if pixels > max_pixels or max(image.size) <= max_side_px:
                return None
            if image.format not in _FORMATS or getattr(image, "n_frames", 1) > 1:
                return None
            smaller = _scaled(image, max_side_px)
            encoded = _encoded(smaller, image.format)
    except Image.DecompressionBombError as error:  # Pillow refuses to open an image of so many pixels
        reason = f"must unpack to at most {MAX_PIXELS} pixels; got far more"
        raise InvalidRequest(f"`{where}` {reason}.", param=where) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InvalidRequest(
            f"`{where}` must be an image that can be read: a JPEG, PNG or WebP.", param=where
        ) from error
    if len(encoded) >= len(data):
        return None
    mime = Image.MIME[image.format]
    return f"data:{mime};base64,{base64.b64encode(encoded).decode()}", pixels - smaller.width * smaller.height


def _scaled(image: Image.Image, max_side_px: int) -> Image.Image:
    # The EXIF orientation is applied to the pixels, because encoding drops the EXIF data.
    upright = ImageOps.exif_transpose(image)
    ratio = max_side_px / max(upright.size)
    size = (max(1, round(upright.width * ratio)), max(1, round(upright.height * ratio)))
    plain = upright.convert("RGBA") if upright.mode == "P" else upright
    return plain.resize(size, Image.Resampling.LANCZOS)


def _encoded(image: Image.Image, kind: str) -> bytes:
    target = io.BytesIO()
    if kind == "PNG":
        image.save(target, "PNG", optimize=True)
    else:
        image.save(target, kind, quality=_JPEG_QUALITY)
    return target.getvalue()


def _decoded(url: str, where: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InvalidRequest(f"`{where}` must be data:image/…;base64, and the image in base64.", param=where)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"`{where}` must hold the image in valid base64.", param=where) from None
