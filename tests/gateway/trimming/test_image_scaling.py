"""Images that are scaled: to the longer side, in their own format, never unpacked blindly."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest
from PIL import Image

from gateway.errors import InvalidRequest
from gateway.trimming.image_scaling import shrunk
from tests.gateway.trimming.test_images import data_url, picture, sending, size_of, urls_of


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_large_image_is_scaled_to_the_longer_side_in_its_own_format(kind: str) -> None:
    after, cut_tokens = shrunk(sending(picture(800, 400, kind)), 200)
    (url,) = urls_of(after)
    assert size_of(url) == (200, 100)
    assert url.startswith(f"data:image/{kind.lower()};base64,")
    assert cut_tokens == (800 * 400 - 200 * 100) // 750
    assert after.document["messages"][0]["content"][1]["image_url"]["detail"] == "low"


def test_the_same_image_becomes_the_same_bytes_so_that_prefixes_still_match() -> None:
    request = sending(picture(600, 600))
    assert shrunk(request, 100)[0].raw == shrunk(request, 100)[0].raw


def test_a_small_image_goes_on_untouched() -> None:
    request = sending(picture(64, 64))
    assert shrunk(request, 64) == (request, 0)


def test_an_animation_keeps_all_its_frames() -> None:
    frames = [Image.new("RGB", (300, 300), color) for color in ("red", "blue")]
    target = io.BytesIO()
    frames[0].save(target, "WEBP", save_all=True, append_images=frames[1:])
    request = sending(data_url(target.getvalue(), "WEBP"))
    assert shrunk(request, 100) == (request, 0)


def test_a_picture_that_lies_on_its_side_is_turned_before_the_note_about_it_is_lost() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter clockwise
    after, _ = shrunk(sending(picture(800, 400, "JPEG", exif=exif)), 200)
    assert size_of(urls_of(after)[0]) == (100, 200)


def test_a_bomb_is_refused_from_its_header() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(bytes(1000)))
    packed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(packed)
    with pytest.raises(InvalidRequest) as caught:
        shrunk(sending(picture(10, 10), data_url(bomb)), 100)
    assert caught.value.param == "messages[0].content[2].image_url.url"
    assert "pixels" in caught.value.message, "it is a PNG, and only too large"


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,####",
        "data:image/png;base64,",
        "data:image/png,plain",
        data_url(b"GIF89a but not really"),
    ],
    ids=["no base64", "nothing", "not base64 at all", "no image"],
)
def test_what_is_no_image_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        shrunk(sending(url), 100)
    assert caught.value.param == "messages[0].content[1].image_url.url"


def test_a_truncated_image_is_refused() -> None:
    data = base64.b64decode(picture(500, 500).partition(",")[2])
    with pytest.raises(InvalidRequest):
        shrunk(sending(data_url(data[: len(data) // 2])), 100)


def test_an_image_that_would_take_more_memory_than_there_is_stays_as_it_is() -> None:
    request = sending(picture(800, 400, "PNG"))
    assert shrunk(request, 200, 800 * 400 - 1) == (request, 0)
    assert shrunk(request, 200, 800 * 400)[1] > 0
